package httpapi_test

import (
	"context"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"

	"email-gateway/api/internal/httpapi"
	"email-gateway/shared/store"
	"email-gateway/shared/store/storetest"
)

// A company with slow searches does not use the connections of others: each of its 40 searches waits for a
// lock, as a slow one would for the disk.
func TestSearches_OfOneCompany(t *testing.T) {
	t.Parallel()
	d := storetest.New(t)
	s, err := store.Open(t.Context(), d.URL, store.Options{StatementTimeout: time.Hour}) // the searches free no connection before the test ends
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	accepter := s.NewAccepter()
	t.Cleanup(accepter.Close)
	g := startOn(t, d, func(p *httpapi.Params) { p.Store, p.Accepter = s, accepter })
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
	awaitLocked(t, g, 4) // the places of one company
	for _, c := range []call{
		{Method: http.MethodPost, Path: "/v1/email/send", Body: emailBody(nil), Key: other},
		{Path: "/v1/emails", Key: other},
		{Path: "/v1/email/" + uuid.NewString(), Key: other},
		{Path: "/v1/suppressions", Key: other},
	} {
		if r := g.do(t, c); r.Status >= http.StatusInternalServerError {
			t.Errorf("%s %s of another company: %d", c.Method, c.Path, r.Status)
		}
	}
}

// awaitLocked waits until that many statements wait for a lock.
func awaitLocked(tb testing.TB, g *gateway, statements int) {
	tb.Helper()
	storetest.WaitFor(tb, g.Database, `SELECT count(*) >= $1 FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'`, statements)
}
