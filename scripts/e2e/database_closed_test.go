package e2e_test

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	"email-gateway/shared/waittest"
)

// Postgres refuses all connections, with an error that is not about its own state, while SES answers two calls. The worker
// keeps the results until Postgres accepts connections again, so no email is sent twice, and requests get 503 meanwhile.
func TestDatabaseRefusesConnections(t *testing.T) {
	t.Parallel()
	s := startSystem(t, nil)
	ses := &heldSES{inner: s.ses, called: make(chan struct{}, 2), answer: make(chan struct{})}
	s.restartWorker(map[string]string{"SES_ENDPOINT": "http://" + serveSES(t, "127.0.0.1:0", ses)})
	accepted, rejected := s.send("ana@example.com", nil), s.send("ana+sim-bad-request@example.com", nil)
	<-ses.called
	<-ses.called
	breakDatabase(s, func() {
		close(ses.answer)
		for _, id := range []string{accepted, rejected} {
			waittest.Until(t, "the worker logs that it cannot record the result", func() bool {
				return slices.ContainsFunc(strings.Split(s.worker.logged(), "\n"), func(line string) bool {
					return strings.Contains(line, id) && strings.Contains(line, "not currently accepting connections")
				})
			})
		}
		// Requests that use connections which are broken already get ACCEPT_UNKNOWN.
		eventually(t, func() error {
			status, answer := s.call(http.MethodPost, "/v1/email/send", newBody("bia@example.com", nil), nil)
			if status != http.StatusServiceUnavailable {
				t.Errorf("a request without a database: %d %s", status, answer)
				return nil
			}
			if !strings.Contains(string(answer), `"DATABASE_UNAVAILABLE"`) {
				return fmt.Errorf("%d %s", status, answer)
			}
			return nil
		})
	})
	for id, want := range map[string]string{accepted: "SENT", rejected: "FAILED"} {
		if got := s.await(id, "SENT", "FAILED"); got.Status != want || got.Attempts != 1 || got.PossibleDuplicate {
			t.Errorf("%+v, want %s", got, want)
		}
		if n := len(s.ses.Requests(id)); n != 1 {
			t.Errorf("%d requests for the email that is %s", n, want)
		}
	}
}

// heldSES holds the answers to SendEmail back.
type heldSES struct {
	inner  http.Handler
	called chan struct{} // a value for each call
	answer chan struct{} // closed: answer
}

func (h *heldSES) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.URL.Path == "/v2/email/outbound-emails" {
		h.called <- struct{}{}
		<-h.answer
	}
	h.inner.ServeHTTP(w, r)
}
