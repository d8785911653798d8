package service_test

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"email-gateway/shared/service"
)

// A stopping program reports that at /readyz and serves for the delay; its listener closes only
// then.
func TestDrain(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		drain := service.NewDrain(5 * time.Second)
		handler := drain.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { _, _ = io.WriteString(w, r.URL.Path) }))
		ask := func(path string) *httptest.ResponseRecorder {
			answer := httptest.NewRecorder()
			handler.ServeHTTP(answer, httptest.NewRequestWithContext(t.Context(), http.MethodGet, path, http.NoBody))
			return answer
		}
		if got := ask("/readyz"); got.Code != http.StatusOK || got.Header().Get("Connection") != "" {
			t.Errorf("/readyz before the stop: %d %v", got.Code, got.Header())
		}
		var closed atomic.Bool
		listener := part{diary: &diary{}, name: "http", stopping: func(context.Context) { closed.Store(true) }}
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() {
			ended <- service.Run(ctx, discard(), time.Minute, service.Named{Name: "http", Service: listener}, service.Named{Name: "drain", Service: drain})
		}()
		synctest.Wait()
		stop()
		synctest.Wait()
		if got := ask("/readyz"); got.Code != http.StatusServiceUnavailable || got.Body.String() != `{"status":"draining"}`+"\n" {
			t.Errorf("/readyz after the stop: %d %s", got.Code, got.Body)
		}
		if got := ask("/v1/emails"); got.Code != http.StatusOK || got.Body.String() != "/v1/emails" || got.Header().Get("Connection") != "close" {
			t.Errorf("a request after the stop: %d %s %v", got.Code, got.Body, got.Header())
		}
		<-time.After(4 * time.Second)
		synctest.Wait()
		if closed.Load() {
			t.Error("the listener is closed before the delay is over")
		}
		if err := <-ended; err != nil || !closed.Load() {
			t.Errorf("run: %v, listener closed: %t", err, closed.Load())
		}
	})
}
