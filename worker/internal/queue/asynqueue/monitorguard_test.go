package asynqueue_test

import (
	"net/http"
	"net/http/httptest"
	"net/netip"
	"testing"
	"testing/synctest"
	"time"

	"email-gateway/shared/clientip"
	"email-gateway/worker/internal/queue/asynqueue"
)

// Wrong passwords are limited per address; the right one works for everyone behind it.
func TestMonitor_WrongPasswords(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		monitor := newMonitor(t, asynqueue.MonitorConfig{
			Conn: parse(t, "redis://127.0.0.1:1"), User: user, Password: password, Proxies: clientip.Proxies{netip.MustParsePrefix("10.0.0.0/8")},
		})
		ask := func(from, password string) *httptest.ResponseRecorder {
			request := httptest.NewRequestWithContext(t.Context(), http.MethodGet, asynqueue.MonitorPath+"/manifest.json", http.NoBody)
			request.RemoteAddr = "10.0.0.1:1"
			request.Header.Set("X-Forwarded-For", from)
			if password != "" {
				request.SetBasicAuth(user, password)
			}
			answer := httptest.NewRecorder()
			monitor.ServeHTTP(answer, request)
			return answer
		}
		for n := range 20 {
			if answer := ask("203.0.113.9", "wrong"); answer.Code != http.StatusUnauthorized {
				t.Fatalf("attempt %d: %d", n, answer.Code)
			}
		}
		start := time.Now()
		if answer := ask("203.0.113.9", "wrong"); answer.Code != http.StatusTooManyRequests || answer.Header().Get("Retry-After") == "" || time.Since(start) < time.Second {
			t.Errorf("one too many: %d %v after %s", answer.Code, answer.Header(), time.Since(start))
		}
		if answer := ask("203.0.113.9", password); answer.Code == http.StatusUnauthorized || answer.Code == http.StatusTooManyRequests {
			t.Errorf("the right password from there: %d", answer.Code)
		}
		if answer := ask("203.0.113.9", ""); answer.Code != http.StatusUnauthorized {
			t.Errorf("a browser without credentials: %d", answer.Code)
		}
		if answer := ask("203.0.113.10", "wrong"); answer.Code != http.StatusUnauthorized {
			t.Errorf("another address: %d", answer.Code)
		}

		// However many try at once, only a few are checked.
		codes := make(chan int, 100)
		for range cap(codes) {
			go func() { codes <- ask("203.0.113.9", "wrong").Code }()
		}
		start = time.Now()
		synctest.Wait()
		if n := len(codes); n < 90 || time.Since(start) > 0 {
			t.Errorf("%d are refused at once", n)
		}
		for range cap(codes) {
			<-codes
		}
	})
}
