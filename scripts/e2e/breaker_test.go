package e2e_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"email-gateway/scripts/sessim"
	"email-gateway/shared/store/storetest"
)

const (
	openedLine = "circuit breaker opened"
	closedLine = "circuit breaker closed"
)

// acceptMany sends one email and copies it n − 1 times, like as many requests.
func acceptMany(s *system, n int) (first string) {
	s.t.Helper()
	first = s.send("cliente@example.com", nil)
	_, err := s.db.SQL.ExecContext(s.t.Context(), `
		INSERT INTO email_outbox (id, company_id, lane_id, request_id, payload, sender, html, html_sha256, checker_version, expires_at)
		SELECT n.id, company_id, lane_id, request_id, jsonb_set(payload, '{outboxId}', to_jsonb(n.id)), sender, html, html_sha256, checker_version, expires_at
		FROM email_outbox, (SELECT gen_random_uuid() AS id FROM generate_series(2, $2)) n WHERE email_outbox.id = $1`, first, n)
	if err != nil {
		s.t.Fatal(err)
	}
	return first
}

// pauseAll pauses every lane until resumeAll, so that all emails are due when it ends.
func pauseAll(s *system) {
	s.gatewayctl("lane", "pause", "--all", "--reason", "the test prepares itself")
}
func resumeAll(s *system) { s.gatewayctl("lane", "resume", "--all") }

func changeSettings(t *testing.T, ses *sessim.Server, change func(*sessim.Settings)) {
	t.Helper()
	settings := ses.Settings()
	change(&settings)
	if err := ses.SetSettings(settings); err != nil {
		t.Fatal(err)
	}
}

// awaitOpened waits until the circuit breaker is open for the reason.
func awaitOpened(s *system, reason string) {
	s.t.Helper()
	eventually(s.t, func() error {
		var state, why string
		err := s.db.SQL.QueryRowContext(s.t.Context(), "SELECT state, coalesce(reason, '') FROM provider_gate").Scan(&state, &why)
		if err == nil && (state != "shut" || why != reason) {
			err = fmt.Errorf("the state is %s (%s), want shut by %s: %s", state, why, reason, s.statusCounts())
		}
		return err
	})
}

// probeEvery is the interval of probes while the circuit breaker is open.
const probeEvery = 5 * time.Second

// awaitProbe waits until the calls in progress have ended, and then until a probe has: while the circuit breaker is
// open, each request is one.
func awaitProbe(s *system) {
	s.t.Helper()
	awaitNoneProcessing(s)
	last := func() string {
		return storetest.Ask[string](s.t, s.db, "SELECT coalesce(probe_at::text, '') FROM provider_gate")
	}
	before, requests := last(), s.ses.Summary().Requests
	eventually(s.t, func() error { // the request alone may be one of an email that was claimed before the circuit breaker opened
		if last() == before {
			return errors.New("no probe")
		}
		return nil
	})
	s.awaitRequests(requests + 1)
	awaitNoneProcessing(s)
}

func awaitNoneProcessing(s *system) {
	s.t.Helper()
	eventually(s.t, func() error {
		if n := storetest.Ask[int](s.t, s.db, "SELECT count(*) FROM email_outbox WHERE status = 'PROCESSING'"); n > 0 {
			return fmt.Errorf("%d emails are PROCESSING: %s", n, s.statusCounts())
		}
		return nil
	})
}

// probesSince returns the maximum number of probes since a time.
func probesSince(start time.Time) int64 { return 1 + int64(time.Since(start)/probeEvery) }

// linesLogged counts the lines that the workers have logged about the circuit breaker.
func linesLogged(line string, workers ...*program) (n int) {
	for _, w := range workers {
		n += strings.Count(w.logged(), line)
	}
	return n
}

// The account is paused while two workers have 600 emails to send: one email fails. The others wait, SES is not
// called for each of them, and all are sent when the account works again.
func TestBreaker_PausedAccount(t *testing.T) {
	t.Parallel()
	s := startSystem(t, map[string]string{"WORKER_CONCURRENCY": "16"})
	other := startProgram(t, "worker", s.env)
	const n = 600
	pauseAll(s)
	acceptMany(s, n)
	changeSettings(s.t, s.ses, func(st *sessim.Settings) { st.Paused = true })
	resumeAll(s)
	released := time.Now()
	awaitOpened(s, "SES_ACCOUNT_SENDING_PAUSED")

	awaitProbe(s) // it is refused too
	if failed := storetest.Ask[int](s.t, s.db, "SELECT count(*) FROM email_outbox WHERE status = 'FAILED'"); failed != 1 {
		t.Errorf("%d emails failed, want only the one that was refused first: %s", failed, s.statusCounts())
	}
	// The calls in flight, the one that opened the circuit breaker, and the probes: not one request per email.
	if asked := s.ses.Summary().Requests; asked > 2*16+1+probesSince(released) || asked < 2 {
		t.Errorf("SES received %d requests", asked)
	}
	if touched := storetest.Ask[int](s.t, s.db, "SELECT count(DISTINCT email_log_id) FROM email_events"); int64(touched) > 2*16+1+probesSince(released) {
		t.Errorf("%d emails have events", touched)
	}
	checkParked(s, "SES_ACCOUNT_SENDING_PAUSED")

	changeSettings(s.t, s.ses, func(st *sessim.Settings) { st.Paused = false })
	s.awaitAll(n-1, "SENT")
	s.sentOnce(n - 1)
	if failed := storetest.Ask[int](s.t, s.db, "SELECT count(*) FROM email_outbox WHERE status = 'FAILED'"); failed != 1 {
		t.Errorf("%d emails failed", failed)
	}
	if spent := storetest.Ask[int](s.t, s.db, "SELECT count(*) FROM email_outbox WHERE status = 'SENT' AND attempts <> 1"); spent > 0 {
		t.Errorf("%d emails spent a try on the account", spent)
	}
	if opened, closed := linesLogged(openedLine, s.worker, other), linesLogged(closedLine, s.worker, other); opened != 1 || closed != 1 {
		t.Errorf("%d lines when it opened, %d when it closed; want one each", opened, closed)
	}
}

// checkParked checks what operators see: /health, the metrics and gatewayctl.
func checkParked(s *system, reason string) {
	s.t.Helper()
	eventually(s.t, func() error { // the worker reports every 5 s
		var health struct {
			Status string
			SES    struct{ Status, Reason, Since string }
		}
		_, answer := s.call(http.MethodGet, "/health", nil, nil)
		if err := json.Unmarshal(answer, &health); err != nil || health.Status != "degraded" || health.SES.Status != "parked" ||
			health.SES.Reason != reason || health.SES.Since == "" {
			return fmt.Errorf("/health: %w %s", err, answer)
		}
		return nil
	})
	if shown := s.gatewayctl("breaker", "show"); !strings.Contains(shown, reason) || !strings.Contains(shown, "last probe") {
		s.t.Errorf("breaker show:\n%s", shown)
	}
	sample := `provider_circuit_breaker_open{reason="` + reason + `"} 1`
	eventually(s.t, func() error {
		response, err := http.Get("http://" + s.worker.addr + "/metrics")
		if err != nil {
			return err
		}
		defer response.Body.Close()
		text, err := io.ReadAll(response.Body)
		if err == nil && !strings.Contains(string(text), sample) {
			err = fmt.Errorf("no sample %s", sample)
		}
		return err
	})
}

// SES refuses connections for 30 s, and the waits between tries are a tenth of the real ones: without a circuit
// breaker the five tries of the first emails would be spent by then.
func TestBreaker_Outage(t *testing.T) {
	t.Parallel()
	s := startSystem(t, map[string]string{"EMAIL_BACKOFF": "100ms,500ms,3s,12s,60s"})
	at, refuse := serveSESUntil(t, freeAddress(t), s.ses)
	s.restartWorker(map[string]string{"SES_ENDPOINT": "http://" + at})
	refuse()
	for i := range 3 { // too few to detect the outage by their number
		s.send(fmt.Sprintf("cliente%d@example.com", i), nil)
	}
	awaitOpened(s, "NETWORK_ERROR")
	acceptMany(s, 297)
	<-time.After(30 * time.Second) // the outage itself
	if opened := linesLogged(openedLine, s.worker); opened != 1 {
		t.Errorf("%d lines when the circuit breaker opened", opened)
	}
	serveSES(t, at, s.ses)
	s.awaitAll(300, "SENT")
	s.sentOnce(300)
	if most := storetest.Ask[int](s.t, s.db, "SELECT max(attempts) FROM email_outbox"); most > 5 {
		t.Errorf("an email needed %d tries", most)
	}
	if more := storetest.Ask[int](s.t, s.db, "SELECT count(*) FROM email_outbox WHERE attempts > 1"); more > 3 {
		t.Errorf("%d emails spent a try on the outage, want at most those that were accepted before it", more)
	}
}

// A spent daily quota counts as one throttle, for the email that was refused first.
func TestBreaker_DailyQuota(t *testing.T) {
	t.Parallel()
	s := startSystem(t, nil)
	const n, quota = 60, 20
	changeSettings(s.t, s.ses, func(st *sessim.Settings) { st.DailyQuota = quota })
	pauseAll(s)
	acceptMany(s, n)
	resumeAll(s)
	awaitOpened(s, "SES_DAILY_QUOTA_EXCEEDED")
	s.awaitAll(quota, "SENT")
	awaitProbe(s)
	if throttles := storetest.Ask[int](s.t, s.db, "SELECT sum(throttles) FROM email_outbox"); throttles != 1 {
		t.Errorf("%d throttles", throttles)
	}
	changeSettings(s.t, s.ses, func(st *sessim.Settings) { st.DailyQuota = 0 })
	s.awaitAll(n, "SENT")
	s.sentOnce(n)
	if opened := linesLogged(openedLine, s.worker); opened != 1 {
		t.Errorf("%d lines when the circuit breaker opened", opened)
	}
}

// Wrong credentials fail no email and cost no try, and only one email per 5 s is tried again.
func TestBreaker_WrongCredentials(t *testing.T) {
	t.Parallel()
	s := startSystem(t, nil)
	const n = 300
	if err := s.ses.Inject(sessim.Rule{Fault: "signature-mismatch"}); err != nil {
		t.Fatal(err)
	}
	pauseAll(s)
	acceptMany(s, n)
	resumeAll(s)
	released := time.Now()
	awaitOpened(s, "SES_AUTH_FAILED")
	awaitProbe(s) // from now on each request is one
	s.awaitRequests(s.ses.Summary().Requests + 3)
	if asked := s.ses.Summary().Requests; asked > 11+probesSince(released) {
		t.Errorf("SES received %d requests", asked)
	}
	if waiting := storetest.Ask[int](s.t, s.db, "SELECT count(*) FROM email_outbox WHERE attempts = 0 AND status IN ('PENDING', 'ENQUEUED')"); waiting < n-1 {
		t.Errorf("%d emails wait untried: %s", waiting, s.statusCounts())
	}
	clearFaults(s)
	awaitResumed(s, n)
	s.sentOnce(n)
	if spent := storetest.Ask[int](s.t, s.db, "SELECT count(*) FROM email_outbox WHERE attempts <> 1"); spent > 0 {
		t.Errorf("%d emails spent a try", spent)
	}
}

// The worker that sends the probe is killed: the next probe closes the circuit breaker.
func TestBreaker_ProbesWorkerKilled(t *testing.T) {
	t.Parallel()
	s := startSystem(t, nil)
	const n = 50
	changeSettings(s.t, s.ses, func(st *sessim.Settings) { st.Suspended = true })
	pauseAll(s)
	acceptMany(s, n)
	resumeAll(s)
	awaitOpened(s, "SES_ACCOUNT_SUSPENDED")
	before := s.ses.Summary().Requests
	changeSettings(s.t, s.ses, func(st *sessim.Settings) { st.Suspended = false })
	if err := s.ses.Inject(sessim.Rule{Fault: "hang", Times: 1}); err != nil {
		t.Fatal(err)
	}
	eventually(t, func() error {
		if in := storetest.Ask[int](s.t, s.db, "SELECT count(*) FROM email_outbox WHERE status = 'PROCESSING'"); in != 1 || s.ses.Summary().Requests == before {
			return fmt.Errorf("no probe yet: %s", s.statusCounts())
		}
		return nil
	})
	s.worker.kill()
	s.worker = startProgram(t, "worker", s.env)
	eventually(t, func() error {
		if sent := storetest.Ask[int](s.t, s.db, "SELECT count(*) FROM email_outbox WHERE status = 'SENT'"); sent < n-2 {
			return fmt.Errorf("%d emails sent: %s", sent, s.statusCounts())
		}
		return nil
	})
	if failed := storetest.Ask[int](s.t, s.db, "SELECT count(*) FROM email_outbox WHERE status = 'FAILED'"); failed != 1 {
		t.Errorf("%d emails failed", failed)
	}
}

// An operator's pause of all lanes lasts until it is resumed, even if SES works.
func TestBreaker_HeldByOperator(t *testing.T) {
	t.Parallel()
	s := startSystem(t, nil)
	s.await(s.send("ana@example.com", nil), "SENT")
	s.gatewayctl("lane", "pause", "--all", "--reason", "drill")
	held := s.send("bea@example.com", nil)
	<-time.After(7 * time.Second) // a probe would have passed by then
	if got := s.email(held); got.Status != "PENDING" || len(got.Events) > 0 {
		t.Errorf("held: %+v", got)
	}
	s.gatewayctl("lane", "pause", "--company", "Acme", "--reason", "complaints")
	s.gatewayctl("lane", "resume", "--all")
	<-time.After(2 * time.Second)
	if got := s.email(held); got.Status != "PENDING" {
		t.Errorf("its lane is held: %+v", got)
	}
	s.gatewayctl("lane", "resume", "--company", "Acme")
	s.await(held, "SENT")
}

func clearFaults(s *system) {
	s.t.Helper()
	request, err := http.NewRequestWithContext(s.t.Context(), http.MethodDelete, "http://"+s.sesAt+"/sim/faults", nil)
	if err != nil {
		s.t.Fatal(err)
	}
	response, err := httpClient.Do(request)
	if err != nil || response.StatusCode >= 300 {
		s.t.Fatalf("clear faults: %v, %v", response, err)
	}
	_ = response.Body.Close()
}
