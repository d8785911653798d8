package httpapi_test

import (
	"context"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
)

// A company with slow searches does not use the connections of others: each of its 40 searches waits for a
// lock, as a slow one would for the disk.
func TestSearches_OfOneCompany(t *testing.T) {
	t.Parallel()
	g := start(t, nil)
	other := g.newKey(t, g.Database.Company(t), nil).String()
	lock, err := g.SQL.BeginTx(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = lock.Rollback() }()
	if _, err := lock.ExecContext(t.Context(), `LOCK TABLE dead_letters IN ACCESS EXCLUSIVE MODE`); err != nil {
		t.Fatal(err)
	}
	ctx, leave := context.WithCancel(t.Context())
	var searching sync.WaitGroup
	defer searching.Wait()
	defer leave()
	for range 40 {
		searching.Go(func() { _, _ = g.try(t, call{Path: "/v1/dead-letters", Context: ctx}) })
	}
	g.awaitLocked(t, 4) // the places of one company
	for _, c := range []call{
		{Method: http.MethodPost, Path: "/v1/email/send", Body: emailBody(nil), Key: other},
		{Path: "/v1/emails", Key: other},
		{Path: "/v1/email/" + uuid.NewString(), Key: other},
		{Path: "/v1/suppressions", Key: other},
	} {
		begun := time.Now()
		r := g.do(t, c)
		if r.Status >= http.StatusInternalServerError || time.Since(begun) > 20*time.Second {
			t.Errorf("%s %s of another company: %d after %s", c.Method, c.Path, r.Status, time.Since(begun))
		}
	}
}

// awaitLocked waits until that many statements wait for a lock.
func (g *gateway) awaitLocked(tb testing.TB, statements int) {
	tb.Helper()
	for deadline := time.Now().Add(3 * time.Minute); ; <-time.After(20 * time.Millisecond) {
		var waiting int
		err := g.SQL.QueryRowContext(tb.Context(), `SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'`).Scan(&waiting)
		if err != nil {
			tb.Fatal(err)
		}
		if waiting >= statements {
			return
		}
		if time.Now().After(deadline) {
			tb.Fatalf("%d statements wait for a lock, want %d", waiting, statements)
		}
	}
}
