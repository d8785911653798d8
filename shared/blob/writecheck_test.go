package blob_test

import (
	"errors"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"

	"email-gateway/shared/blob"
	"email-gateway/shared/blob/blobtest"
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
