package e2e_test

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"email-gateway/scripts/sessim"
)

const (
	shutLine = "sending parked"
	openLine = "sending goes on"
)

// acceptMany sends one email and makes n − 1 more like it, as many requests would.
func (s *system) acceptMany(n int) (first string) {
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

// hold keeps every email back until release, so that all of them wait when it ends.
func (s *system) hold() {
	s.gatewayctl("lane", "pause", "--all", "--reason", "the test prepares itself")
}
func (s *system) release() { s.gatewayctl("lane", "resume", "--all") }

func (s *system) set(change func(*sessim.Settings)) {
	s.t.Helper()
	settings := s.ses.Settings()
	change(&settings)
	if err := s.ses.SetSettings(settings); err != nil {
		s.t.Fatal(err)
	}
}

// awaitShut waits until the gate is shut for the reason.
func (s *system) awaitShut(reason string) {
	s.t.Helper()
	eventually(s.t, func() error {
		var state, why string
		err := s.db.SQL.QueryRowContext(s.t.Context(), "SELECT state, coalesce(reason, '') FROM provider_gate").Scan(&state, &why)
		if err == nil && (state != "shut" || why != reason) {
			err = fmt.Errorf("the gate is %s (%s), want it shut by %s: %s", state, why, reason, s.census())
		}
		return err
	})
}

// probeEvery is the time between two probes of a parked provider.
const probeEvery = 5 * time.Second

// awaitProbe waits until the calls that are under way have ended, and then until a probe has: while
// the gate is shut, each request is one.
func (s *system) awaitProbe() {
	s.t.Helper()
	s.awaitNoneInWork()
	s.awaitRequests(s.ses.Summary().Requests + 1)
	s.awaitNoneInWork()
}

func (s *system) awaitNoneInWork() {
	s.t.Helper()
	eventually(s.t, func() error {
		if n := s.count("SELECT count(*) FROM email_outbox WHERE status = 'PROCESSING'"); n > 0 {
			return fmt.Errorf("%d emails are in work: %s", n, s.census())
		}
		return nil
	})
}

// probesInTime waits for four probes, and checks that the shortest time between two is 5 s, or at most twice that: other
// work on the machine may delay one probe, and a longer pause delays each.
func (s *system) probesInTime() {
	s.t.Helper()
	s.awaitNoneInWork()
	const probes, late = 4, 2 * probeEvery
	before := s.ses.Summary().Requests
	s.awaitRequests(before + probes)
	var gaps []time.Duration
	ledger := s.ses.Ledger()[before : before+probes]
	for i, probe := range ledger[1:] {
		gaps = append(gaps, probe.Time.Sub(ledger[i].Time))
	}
	s.t.Logf("from probe to probe: %v", gaps)
	if slices.Min(gaps) > late { // TestGate_PausedAccount counts those that come too early
		s.t.Errorf("from probe to probe: %v, want %s", gaps, probeEvery)
	}
}

// probesSince is how many probes there may have been.
func probesSince(begun time.Time) int64 { return 1 + int64(time.Since(begun)/probeEvery) }

// count asks the database for one number.
func (s *system) count(query string) (n int) {
	s.t.Helper()
	if err := s.db.SQL.QueryRowContext(s.t.Context(), query).Scan(&n); err != nil {
		s.t.Fatal(err)
	}
	return n
}

// told counts the lines about the gate that the workers have logged.
func told(line string, workers ...*program) (n int) {
	for _, w := range workers {
		n += strings.Count(w.logged(), line)
	}
	return n
}

// A paused account, met by two workers with 2,000 emails before them, costs one of them.
// The others wait, nobody asks for each of them, and all are sent when the account works
// again.
func TestGate_PausedAccount(t *testing.T) {
	t.Parallel()
	s := startSystem(t, map[string]string{"WORKER_CONCURRENCY": "16"})
	other := startProgram(t, "worker", s.env)
	const n = 2000
	s.hold()
	s.acceptMany(n)
	s.set(func(st *sessim.Settings) { st.Paused = true })
	s.release()
	released := time.Now()
	s.awaitShut("SES_ACCOUNT_SENDING_PAUSED")

	s.awaitProbe() // it meets the same
	if failed := s.count("SELECT count(*) FROM email_outbox WHERE status = 'FAILED'"); failed != 1 {
		t.Errorf("%d emails failed, want the one that met it: %s", failed, s.census())
	}
	// Those in flight, one that shut it, and the probes: not one request per email.
	if asked := s.ses.Summary().Requests; asked > 2*16+1+probesSince(released) || asked < 2 {
		t.Errorf("SES was asked %d times", asked)
	}
	if touched := s.count("SELECT count(DISTINCT email_log_id) FROM email_events"); int64(touched) > 2*16+1+probesSince(released) {
		t.Errorf("%d emails have events", touched)
	}
	s.looksParked("SES_ACCOUNT_SENDING_PAUSED")

	s.set(func(st *sessim.Settings) { st.Paused = false })
	s.awaitAll(n-1, "SENT")
	s.sentOnce(n - 1)
	if failed := s.count("SELECT count(*) FROM email_outbox WHERE status = 'FAILED'"); failed != 1 {
		t.Errorf("%d emails failed", failed)
	}
	if spent := s.count("SELECT count(*) FROM email_outbox WHERE status = 'SENT' AND attempts <> 1"); spent > 0 {
		t.Errorf("%d emails paid for the account with a try", spent)
	}
	if shut, open := told(shutLine, s.worker, other), told(openLine, s.worker, other); shut != 1 || open != 1 {
		t.Errorf("%d lines when it shut, %d when it opened; want one each", shut, open)
	}
}

// looksParked checks what operators see: /health, the metrics and gatewayctl.
func (s *system) looksParked(reason string) {
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
	if shown := s.gatewayctl("gate", "show"); !strings.Contains(shown, reason) || !strings.Contains(shown, "last probe") {
		s.t.Errorf("gate show:\n%s", shown)
	}
	sample := `provider_gate_shut{reason="` + reason + `"} 1`
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

// SES cannot be reached for 30 s, and the waits between tries are a tenth of the real
// ones: without a gate the five tries of the first emails would be over by then.
func TestGate_Outage(t *testing.T) {
	t.Parallel()
	s := startSystem(t, map[string]string{"EMAIL_BACKOFF": "100ms,500ms,3s,12s,60s"})
	at, refuse := serveSESUntil(t, "127.0.0.1:0", s.ses)
	s.restartWorker(map[string]string{"SES_ENDPOINT": "http://" + at})
	refuse()
	for i := range 3 { // few enough that only the time can tell
		s.send(fmt.Sprintf("cliente%d@example.com", i), nil)
	}
	s.awaitShut("NETWORK_ERROR")
	s.acceptMany(297)
	<-time.After(30 * time.Second) // the outage itself
	if shut := told(shutLine, s.worker); shut != 1 {
		t.Errorf("%d lines when the gate shut", shut)
	}
	serveSES(t, at, s.ses)
	s.awaitAll(300, "SENT")
	s.sentOnce(300)
	if most := s.count("SELECT max(attempts) FROM email_outbox"); most > 5 {
		t.Errorf("an email needed %d tries", most)
	}
	if more := s.count("SELECT count(*) FROM email_outbox WHERE attempts > 1"); more > 3 {
		t.Errorf("%d emails paid for the outage with a try, want those at most that were there when it began", more)
	}
}

// A spent daily quota counts as a throttle once, for the email that met it.
func TestGate_DailyQuota(t *testing.T) {
	t.Parallel()
	s := startSystem(t, nil)
	const n, quota = 60, 20
	s.set(func(st *sessim.Settings) { st.DailyQuota = quota })
	s.hold()
	s.acceptMany(n)
	s.release()
	s.awaitShut("SES_DAILY_QUOTA_EXCEEDED")
	s.awaitAll(quota, "SENT")
	s.awaitProbe()
	if throttles := s.count("SELECT sum(throttles) FROM email_outbox"); throttles != 1 {
		t.Errorf("%d throttles", throttles)
	}
	s.set(func(st *sessim.Settings) { st.DailyQuota = 0 })
	s.awaitAll(n, "SENT")
	s.sentOnce(n)
	if shut := told(shutLine, s.worker); shut != 1 {
		t.Errorf("%d lines when the gate shut", shut)
	}
}

// Wrong credentials fail nobody and cost no try, and nobody asks again every 5 s but one.
func TestGate_WrongCredentials(t *testing.T) {
	t.Parallel()
	s := startSystem(t, nil)
	const n = 300
	if err := s.ses.Inject(sessim.Rule{Fault: "signature-mismatch"}); err != nil {
		t.Fatal(err)
	}
	s.hold()
	s.acceptMany(n)
	s.release()
	released := time.Now()
	s.awaitShut("SES_AUTH_FAILED")
	s.probesInTime()
	if asked := s.ses.Summary().Requests; asked > 11+probesSince(released) {
		t.Errorf("SES was asked %d times", asked)
	}
	if waiting := s.count("SELECT count(*) FROM email_outbox WHERE attempts = 0 AND status IN ('PENDING', 'ENQUEUED')"); waiting < n-1 {
		t.Errorf("%d emails wait untried: %s", waiting, s.census())
	}
	end := time.Now()
	s.clearFaults()
	s.awaitResumed(n, end, resumedWithin)
	s.sentOnce(n)
	if spent := s.count("SELECT count(*) FROM email_outbox WHERE attempts <> 1"); spent > 0 {
		t.Errorf("%d emails paid with a try", spent)
	}
}

// The worker with the probe in its hands is killed: the next probe opens the gate.
func TestGate_ProbesWorkerKilled(t *testing.T) {
	t.Parallel()
	s := startSystem(t, nil)
	const n = 50
	s.set(func(st *sessim.Settings) { st.Suspended = true })
	s.hold()
	s.acceptMany(n)
	s.release()
	s.awaitShut("SES_ACCOUNT_SUSPENDED")
	before := s.ses.Summary().Requests
	s.set(func(st *sessim.Settings) { st.Suspended = false })
	if err := s.ses.Inject(sessim.Rule{Fault: "hang", Times: 1}); err != nil {
		t.Fatal(err)
	}
	eventually(t, func() error {
		if in := s.count("SELECT count(*) FROM email_outbox WHERE status = 'PROCESSING'"); in != 1 || s.ses.Summary().Requests == before {
			return fmt.Errorf("no probe yet: %s", s.census())
		}
		return nil
	})
	s.worker.kill()
	s.worker = startProgram(t, "worker", s.env)
	eventually(t, func() error {
		if sent := s.count("SELECT count(*) FROM email_outbox WHERE status = 'SENT'"); sent < n-2 {
			return fmt.Errorf("%d emails sent: %s", sent, s.census())
		}
		return nil
	})
	if failed := s.count("SELECT count(*) FROM email_outbox WHERE status = 'FAILED'"); failed != 1 {
		t.Errorf("%d emails failed", failed)
	}
}

// An operator's hold lasts until he takes it back, whatever works.
func TestGate_HeldByOperator(t *testing.T) {
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

func (s *system) clearFaults() {
	s.t.Helper()
	request, err := http.NewRequestWithContext(s.t.Context(), http.MethodDelete, "http://"+s.sesAt+"/sim/faults", nil)
	if err != nil {
		s.t.Fatal(err)
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil || response.StatusCode >= 300 {
		s.t.Fatalf("clear faults: %v, %v", response, err)
	}
	_ = response.Body.Close()
}
