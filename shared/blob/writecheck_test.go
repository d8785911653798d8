package blob_test

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"testing/iotest"
	"time"

	"github.com/google/uuid"

	"email-gateway/shared/blob"
	"email-gateway/shared/blob/blobtest"
	"email-gateway/shared/waittest"
)

// The program that stores files finds an S3 server that accepts none to be down, as soon as an upload has failed, and
// others do not. The check leaves nothing behind.
func TestPing_ServerRefusesWrites(t *testing.T) {
	t.Parallel()
	var refuses atomic.Bool
	var begun atomic.Int64
	url := denying(t, blobtest.Start(t).URL, func(r *http.Request) bool {
		if r.Method == http.MethodPost && r.URL.Query().Has("uploads") {
			begun.Add(1)
		}
		return refuses.Load() && (r.Method == http.MethodPut || r.Method == http.MethodPost)
	})
	ours := &installation{id: uuid.New()}
	api, other := openAs(t, url, blob.Options{Owner: ours, Claim: ours}), openAs(t, url, blob.Options{Owner: ours})
	if err := api.Ping(t.Context()); err != nil {
		t.Fatal(err)
	}
	start, before := time.Now(), begun.Load()
	for range 3 {
		if err := errors.Join(api.Ping(t.Context()), api.Put(t.Context(), "files/a", strings.NewReader("x"))); err != nil {
			t.Fatal(err)
		}
	}
	if n := begun.Load() - before; time.Since(start) < time.Minute && n > 0 {
		t.Errorf("checked %d times in %s", n, time.Since(start))
	}
	refuses.Store(true)
	if err := api.Put(t.Context(), "files/b", strings.NewReader("x")); !errors.Is(err, blob.ErrUnavailable) {
		t.Fatal(err)
	}
	if err := api.Ping(t.Context()); !errors.Is(err, blob.ErrUnavailable) || !strings.Contains(err.Error(), "AccessDenied") {
		t.Errorf("refused: %v", err)
	}
	if err := errors.Join(other.Ping(t.Context()), other.PingRead(t.Context())); err != nil {
		t.Errorf("a program that stores no files: %v", err)
	}
	refuses.Store(false)
	if err := api.Ping(t.Context()); err != nil {
		t.Errorf("accepted again: %v", err)
	}
	if n, err := api.DropUnfinished(t.Context(), "files/", time.Now().Add(time.Hour)); n != 0 || err != nil {
		t.Errorf("%d uploads are left, %v", n, err)
	}
}

// While a check takes longer than a Ping may, its previous result counts. An upload that cannot be aborted does not count
// as down.
func TestPing_SlowWrites(t *testing.T) {
	t.Parallel()
	var slow, refuses atomic.Bool
	answer := make(chan struct{})
	url := denying(t, blobtest.Start(t).URL, func(r *http.Request) bool {
		if slow.Load() && r.Method == http.MethodPost {
			<-answer
		}
		return refuses.Load() && r.Method == http.MethodPost || r.Method == http.MethodDelete
	})
	ours := &installation{id: uuid.New()}
	api := openAs(t, url, blob.Options{Owner: ours, Claim: ours})
	ping := func() error {
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
		defer cancel()
		return api.Ping(ctx)
	}
	if err := ping(); err != nil {
		t.Fatalf("the abort is refused: %v", err)
	}
	if err := api.Put(t.Context(), "files/a", iotest.ErrReader(errors.New("client left"))); err == nil {
		t.Fatal("stored")
	}
	slow.Store(true)
	for range 2 {
		if err := ping(); err != nil {
			t.Errorf("slow: %v", err)
		}
	}
	refuses.Store(true)
	close(answer)
	waittest.Until(t, "the refusal is the result", func() bool { return ping() != nil })
}

// A Ping that ends before its check has the reason for which the check before failed.
func TestPing_Reason(t *testing.T) {
	t.Parallel()
	answer := make(chan struct{})
	url := denying(t, blobtest.Start(t).URL, func(*http.Request) bool {
		<-answer
		return true
	})
	t.Cleanup(func() { close(answer) })
	b := openAs(t, url, blob.Options{})
	ping := func() error {
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		defer cancel()
		return b.Ping(ctx)
	}
	if err := ping(); !errors.Is(err, context.DeadlineExceeded) {
		t.Fatal(err)
	}
	answer <- struct{}{}
	waittest.Until(t, "the reason", func() bool {
		err := ping()
		return errors.Is(err, context.DeadlineExceeded) && strings.Contains(err.Error(), "Forbidden")
	})
}
