package e2e_test

import (
	"fmt"
	"io"
	"maps"
	"net/http"
	"strings"
	"testing"

	"email-gateway/scripts/sessim"
)

const (
	suspendedLine = "this worker sends nothing but one email every few seconds"
	sendsLine     = "this worker sends again"
)

// Of two workers one cannot send, for a reason of its own. It opens the circuit breaker once, like for an outage. After
// a probe of the other worker it suspends itself: the other worker sends everything, and no email fails.
func TestBreaker_OneFaultyWorker(t *testing.T) {
	t.Parallel()
	const concurrency = 16
	for name, c := range map[string]struct {
		fault string // of the faulty worker's requests; "" = its endpoint refuses connections
		lost  bool   // SES accepts its emails
	}{
		"closed port":    {},
		"signature":      {fault: "signature-mismatch"},
		"lost responses": {fault: "cut-after", lost: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := startSystem(t, map[string]string{"WORKER_CONCURRENCY": fmt.Sprint(concurrency)})
			env := maps.Clone(s.env)
			at, refuse := serveSESUntil(t, "127.0.0.1:0", s.ses)
			maps.Copy(env, map[string]string{"SES_ENDPOINT": "http://" + at, "AWS_ACCESS_KEY_ID": "faulty", "AWS_SECRET_ACCESS_KEY": "faulty"})
			faulty := startProgram(t, "worker", env)
			if c.fault == "" {
				refuse()
			} else {
				s.inject(sessim.Rule{Fault: c.fault, Match: sessim.Match{AccessKey: "faulty"}})
			}

			n := 0
			sendUntil := func(line string) {
				t.Helper()
				eventually(t, func() error {
					if shuts := s.count("SELECT shuts FROM provider_gate"); shuts > 2 {
						t.Fatalf("the circuit breaker has opened %d times: %s", shuts, s.statusCounts())
					}
					if linesLogged(line, faulty) > 0 {
						return nil
					}
					s.acceptMany(50)
					n += 50
					return fmt.Errorf("the faulty worker has not logged %q: %s", line, s.statusCounts())
				})
			}
			sendUntil(suspendedLine)
			s.expectReady(faulty, http.StatusServiceUnavailable)
			s.expectReady(s.worker, http.StatusOK)
			s.acceptMany(300)
			n += 300
			s.awaitAll(n, "SENT")
			if c.lost { // those in flight when the breaker opened and when it closed, and a few afterwards
				if twice, most := s.ses.Rules()[0].Hits, 20+2*concurrency+8; twice > most {
					t.Errorf("the faulty worker has sent %d emails, want at most %d", twice, most)
				}
			}

			if c.fault == "" {
				serveSES(t, at, s.ses)
			} else {
				s.clearFaults()
			}
			sendUntil(sendsLine)
			s.expectReady(faulty, http.StatusOK)
		})
	}
}

// expectReady waits until /readyz of a worker answers with this status.
func (s *system) expectReady(worker *program, status int) {
	s.t.Helper()
	eventually(s.t, func() error {
		response, err := http.Get("http://" + worker.addr + "/readyz")
		if err != nil {
			return err
		}
		defer response.Body.Close()
		text, err := io.ReadAll(response.Body)
		if err == nil && (response.StatusCode != status || strings.Contains(string(text), `"ses":{"status":"connected"}`) != (status == http.StatusOK)) {
			err = fmt.Errorf("/readyz: %s %s, want %d", response.Status, text, status)
		}
		return err
	})
}
