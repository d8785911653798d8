package bench

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	"email-gateway/scripts/bench/environment"
)

// Emails that the connections post beyond n are counted: otherwise the batch would look faster than
// it was.
func TestPostBatch_Count(t *testing.T) {
	t.Parallel()
	var taken atomic.Int64
	api := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		taken.Add(1)
		w.Header().Set("Content-Length", "2")
		w.WriteHeader(http.StatusAccepted)
		_, _ = io.WriteString(w, "{}")
	}))
	defer api.Close()
	text, err := environment.NewEmailTemplate()
	if err != nil {
		t.Fatal(err)
	}
	tenant := &tenant{addr: strings.TrimPrefix(api.URL, "http://"), keys: []string{"k"}, emailTemplate: text, serial: new(atomic.Int64)}
	for _, n := range []int{1, 500} {
		taken.Store(0)
		posted, err := tenant.postBatch(t.Context(), n)
		if err != nil {
			t.Fatal(err)
		}
		if posted != int(taken.Load()) || posted < n || posted >= n+batchConnections {
			t.Errorf("requested %d: returned %d, posted %d", n, posted, taken.Load())
		}
	}
}

func TestPostBatch_Refused(t *testing.T) {
	t.Parallel()
	api := httptest.NewServer(http.NotFoundHandler())
	defer api.Close()
	text, err := environment.NewEmailTemplate()
	if err != nil {
		t.Fatal(err)
	}
	tenant := &tenant{addr: strings.TrimPrefix(api.URL, "http://"), keys: []string{"k"}, emailTemplate: text, serial: new(atomic.Int64)}
	if _, err := tenant.postBatch(t.Context(), 1000); err == nil || !strings.Contains(err.Error(), "404") {
		t.Errorf("got %v", err)
	}
}
