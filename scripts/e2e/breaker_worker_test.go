package e2e_test

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"email-gateway/scripts/sessim"
	"email-gateway/shared/store/storetest"
)

const (
	suspendedLine = "worker suspended"
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
			at, refuse := serveSESUntil(t, freeAddress(t), s.ses)
			own := map[string]string{"SES_ENDPOINT": "http://" + at, "AWS_ACCESS_KEY_ID": "faulty", "AWS_SECRET_ACCESS_KEY": "faulty"}
			faulty := startProgram(t, "worker", s.env, own)
			if c.fault == "" {
				refuse()
			} else {
				injectFault(s.t, s.ses, sessim.Rule{Fault: c.fault, Match: sessim.Match{AccessKey: "faulty"}})
			}

			n := 0
			sendUntil := func(line string) {
				t.Helper()
				eventually(t, func() error {
					if shuts := storetest.Ask[int](s.t, s.db, "SELECT shuts FROM provider_gate"); shuts > 2 {
						t.Fatalf("the circuit breaker has opened %d times: %s", shuts, s.statusCounts())
					}
					if linesLogged(line, faulty) > 0 {
						return nil
					}
					acceptMany(s, 50)
					n += 50
					return fmt.Errorf("the faulty worker has not logged %q: %s", line, s.statusCounts())
				})
			}
			sendUntil(suspendedLine)
			expectSuspended(s, faulty, true)
			expectSuspended(s, s.worker, false)
			acceptMany(s, 300)
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
				clearFaults(s)
			}
			sendUntil(sendsLine)
			expectSuspended(s, faulty, false)
		})
	}
}

// expectSuspended waits until /readyz and the metrics of a worker say whether it is suspended.
func expectSuspended(s *system, worker *program, suspended bool) {
	s.t.Helper()
	part, sample := `"ses":{"status":"connected"}`, "\nworker_suspended 0\n"
	if suspended {
		part, sample = `"ses":{"status":"disconnected"}`, "\nworker_suspended 1\n"
	}
	eventually(s.t, func() error {
		for path, want := range map[string]string{"/readyz": part, "/metrics": sample} {
			response, err := http.Get("http://" + worker.addr + path)
			if err != nil {
				return err
			}
			text, err := io.ReadAll(response.Body)
			_ = response.Body.Close()
			if unready := path == "/readyz" && suspended; err == nil &&
				(!strings.Contains(string(text), want) || unready != (response.StatusCode == http.StatusServiceUnavailable)) {
				err = fmt.Errorf("%s: %s, want %q", path, response.Status, want)
			}
			if err != nil {
				return err
			}
		}
		return nil
	})
}
