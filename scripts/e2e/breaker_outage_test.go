package e2e_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"email-gateway/scripts/sessim"
	"email-gateway/shared/store/storetest"
)

func injectFault(t *testing.T, ses *sessim.Server, rule sessim.Rule) {
	t.Helper()
	if err := ses.Inject(rule); err != nil {
		t.Fatal(err)
	}
}

// awaitResumed waits until n emails are sent, and SES has accepted no other, after an outage. The first email that SES
// accepts closes the circuit breaker for the others: few of them are probes.
func awaitResumed(s *system, n int) {
	s.t.Helper()
	s.awaitAll(n, "SENT")
	var state string
	var since time.Time
	if err := s.db.SQL.QueryRowContext(s.t.Context(), "SELECT state, since FROM provider_gate").Scan(&state, &since); err != nil || state != "open" {
		s.t.Fatalf("the circuit breaker is %s, %v, want it to be closed", state, err)
	}
	probes := len(slices.DeleteFunc(s.ses.Ledger(), func(e sessim.Entry) bool { return !e.Accepted || e.Time.After(since) }))
	s.t.Logf("%d of %d emails were sent before the circuit breaker closed", probes, n)
	if probes > n/2 {
		s.t.Errorf("%d of %d emails were probes", probes, n)
	}
}

// expectSurvived checks emails that went through an outage with unknown outcomes: none failed because its tries were
// spent, and each with an unknown outcome is flagged.
func expectSurvived(s *system) {
	s.t.Helper()
	if n := storetest.Ask[int](s.t, s.db, "SELECT count(*) FROM email_outbox WHERE status = 'FAILED'"); n > 0 {
		s.t.Errorf("%d emails failed: %s", n, s.statusCounts())
	}
	var met, flagged int // of one snapshot: probes go on
	if err := s.db.SQL.QueryRowContext(s.t.Context(), `SELECT (SELECT count(DISTINCT email_log_id) FROM email_events WHERE type = 'OUTCOME_UNKNOWN'),
		(SELECT count(*) FROM email_outbox WHERE outcome_unknown AND possible_duplicate)`).Scan(&met, &flagged); err != nil {
		s.t.Fatal(err)
	}
	if met == 0 || flagged != met {
		s.t.Errorf("%d emails had an unknown outcome, %d are flagged", met, flagged)
	}
	if most := storetest.Ask[int](s.t, s.db, "SELECT max(attempts) FROM email_outbox"); most > 5 {
		s.t.Errorf("an email has spent %d tries", most)
	}
}

// SES answers 500 for what would be 20 minutes of the retry schedule, whose waits are a thirtieth of the real ones.
// Neither the 40 emails that wait all the time nor those accepted meanwhile fail.
func TestBreaker_InternalErrors(t *testing.T) {
	t.Parallel()
	s := startSystem(t, map[string]string{"EMAIL_BACKOFF": "33ms,167ms,1s,4s,20s"})
	const n = 40
	injectFault(s.t, s.ses, sessim.Rule{Fault: "internal-failure"})
	pauseAll(s)
	acceptMany(s, n)
	resumeAll(s)
	awaitOpened(s, "SES_INTERNAL_ERROR")
	<-time.After(20 * time.Second)
	late := s.send("late@example.com", nil)
	<-time.After(20 * time.Second)
	expectSurvived(s)
	if opened := linesLogged(openedLine, s.worker); opened != 1 {
		t.Errorf("%d lines when the circuit breaker opened", opened)
	}
	clearFaults(s)
	awaitResumed(s, n+1)
	s.await(late, "SENT")
	expectSurvived(s)
}

// Late in an outage, emails with an unknown outcome wait for minutes and are not probes meanwhile. Emails accepted
// during the outage are, one every 5 s: the first one after its end is sent and closes the circuit breaker for the
// others.
func TestBreaker_InternalErrorsWithLongWaits(t *testing.T) {
	t.Parallel()
	s := startSystem(t, map[string]string{"EMAIL_BACKOFF": "10m", "WORKER_CONCURRENCY": "32"})
	const old, fresh = 24, 10
	injectFault(s.t, s.ses, sessim.Rule{Fault: "internal-failure"})
	pauseAll(s)
	acceptMany(s, old)
	resumeAll(s)
	awaitOpened(s, "SES_INTERNAL_ERROR")
	eventually(t, func() error { // those that found it open were probes
		if n := storetest.Ask[int](s.t, s.db, "SELECT count(*) FROM email_outbox WHERE NOT outcome_unknown"); n > 0 {
			return fmt.Errorf("%d emails may still be probes: %s", n, s.statusCounts())
		}
		return nil
	})
	for i := range fresh {
		s.send(fmt.Sprintf("fresco%d@example.com", i), nil)
	}
	awaitProbe(s)
	clearFaults(s)
	awaitNoneProcessing(s)                                                                             // of the probes that met the fault
	failed := storetest.Ask[int](s.t, s.db, "SELECT count(*) FROM email_outbox WHERE outcome_unknown") // the old ones and some probes
	awaitResumed(s, old+fresh-failed)
	expectSurvived(s)
}

// SES does not answer: every call ends by its timeout. The calls in progress at the end of the outage run into theirs
// too.
func TestBreaker_ReadTimeouts(t *testing.T) {
	t.Parallel()
	s := startSystem(t, map[string]string{"EMAIL_BACKOFF": "33ms,167ms,1s,4s,20s", "WORKER_CONCURRENCY": "32"})
	const n = 60
	injectFault(s.t, s.ses, sessim.Rule{Fault: "hang"})
	pauseAll(s)
	acceptMany(s, n)
	resumeAll(s)
	eventually(t, func() error {
		if storetest.Ask[int](s.t, s.db, "SELECT count(*) FROM provider_gate WHERE state = 'shut' AND reason = 'SES_TIMEOUT'") == 0 {
			return fmt.Errorf("the circuit breaker is closed: %s", s.statusCounts())
		}
		return nil
	})
	<-time.After(40 * time.Second) // some probes time out too
	expectSurvived(s)
	clearFaults(s)
	awaitResumed(s, n)
	expectSurvived(s)
}

// One email breaks the connection each time. It fails after its tries, and other emails are not affected.
func TestBreaker_OneBadEmail(t *testing.T) {
	t.Parallel()
	s := startSystem(t, map[string]string{"EMAIL_BACKOFF": "50ms"})
	s.await(s.send("sim-cut-before@example.com", nil), "FAILED")
	if shuts := storetest.Ask[int](s.t, s.db, "SELECT shuts FROM provider_gate"); shuts != 0 {
		t.Errorf("the circuit breaker opened %d times", shuts)
	}
}

// The account is paused while the worker is down: the worker detects it at its start, and no email loses a try.
func TestBreaker_AccountDisabledAtStart(t *testing.T) {
	t.Parallel()
	s := startSystem(t, nil)
	const n = 50
	pauseAll(s)
	acceptMany(s, n)
	changeSettings(s.t, s.ses, func(st *sessim.Settings) { st.Paused = true })
	s.restartWorker(nil)
	awaitOpened(s, "SES_ACCOUNT_SENDING_PAUSED")
	if asked := s.ses.Summary().Requests; asked != 0 {
		t.Errorf("SES refused %d emails before", asked)
	}
	resumeAll(s)
	awaitProbe(s)
	if paid := storetest.Ask[int](s.t, s.db, "SELECT count(*) FROM email_outbox WHERE status = 'FAILED' OR attempts > 0"); paid > 1 { // one may be PROCESSING
		t.Errorf("%d emails spent a try: %s", paid, s.statusCounts())
	}
	changeSettings(s.t, s.ses, func(st *sessim.Settings) { st.Paused = false })
	awaitResumed(s, n)
	s.sentOnce(n)
}
