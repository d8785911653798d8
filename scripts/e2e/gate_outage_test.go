package e2e_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"email-gateway/scripts/sessim"
)

func (s *system) inject(rule sessim.Rule) {
	s.t.Helper()
	if err := s.ses.Inject(rule); err != nil {
		s.t.Fatal(err)
	}
}

// awaitResumed waits until n emails, all that there are, are sent after an outage. The first one that SES
// accepts opens the gate for the others: if each were a probe, they would take n times 5 s.
func (s *system) awaitResumed(n int) {
	s.t.Helper()
	begun := time.Now()
	s.awaitAll(n, "SENT")
	accepted := slices.DeleteFunc(s.ses.Ledger(), func(e sessim.Entry) bool { return !e.Accepted })
	if len(accepted) == 0 {
		s.t.Fatal("SES has accepted no email")
	}
	first, last := accepted[0].Time, accepted[len(accepted)-1].Time
	s.t.Logf("sent again after %s, all of %d within %s of the first", first.Sub(begun).Round(100*time.Millisecond), n, last.Sub(first).Round(100*time.Millisecond))
	if limit := time.Duration(n) * probeEvery / 2; last.Sub(first) > limit {
		s.t.Errorf("%d emails were sent within %s of the first, want less than %s", n, last.Sub(first), limit)
	}
}

// expectSurvived checks emails that went through an outage of unknown outcomes: none failed
// for want of tries, and each whose outcome was not known says so.
func (s *system) expectSurvived() {
	s.t.Helper()
	if n := s.count("SELECT count(*) FROM email_outbox WHERE status = 'FAILED'"); n > 0 {
		s.t.Errorf("%d emails failed: %s", n, s.census())
	}
	met := s.count("SELECT count(DISTINCT email_log_id) FROM email_events WHERE type = 'OUTCOME_UNKNOWN'")
	flagged := s.count("SELECT count(*) FROM email_outbox WHERE outcome_unknown AND possible_duplicate")
	if met == 0 || flagged != met {
		s.t.Errorf("%d emails had an unknown outcome, %d are flagged", met, flagged)
	}
	if most := s.count("SELECT max(attempts) FROM email_outbox"); most > 5 {
		s.t.Errorf("an email has spent %d tries", most)
	}
}

// SES answers 500 for 20 minutes of the schedule, whose waits are a thirtieth of the real
// ones. Neither the 40 emails that wait all the time nor those that come meanwhile fail.
func TestGate_InternalErrors(t *testing.T) {
	t.Parallel()
	s := startSystem(t, map[string]string{"EMAIL_BACKOFF": "33ms,167ms,1s,4s,20s"})
	const n = 40
	s.inject(sessim.Rule{Fault: "internal-failure"})
	s.hold()
	s.acceptMany(n)
	s.release()
	s.awaitShut("SES_INTERNAL_ERROR")
	<-time.After(20 * time.Second)
	late := s.send("late@example.com", nil)
	<-time.After(20 * time.Second)
	s.expectSurvived()
	if shut := told(shutLine, s.worker); shut != 1 {
		t.Errorf("%d lines when the gate shut", shut)
	}
	s.clearFaults()
	s.awaitResumed(n + 1)
	s.await(late, "SENT")
	s.expectSurvived()
}

// Nobody at SES answers: every call ends by its own timeout. The calls under way when that
// is over take theirs to the end.
func TestGate_ReadTimeouts(t *testing.T) {
	t.Parallel()
	s := startSystem(t, map[string]string{"EMAIL_BACKOFF": "33ms,167ms,1s,4s,20s", "WORKER_CONCURRENCY": "32"})
	const n = 60
	s.inject(sessim.Rule{Fault: "hang"})
	s.hold()
	s.acceptMany(n)
	s.release()
	eventually(t, func() error {
		if s.count("SELECT count(*) FROM provider_gate WHERE state = 'shut' AND reason = 'SES_TIMEOUT'") == 0 {
			return fmt.Errorf("the gate is open: %s", s.census())
		}
		return nil
	})
	<-time.After(40 * time.Second) // some probes time out too
	s.expectSurvived()
	s.clearFaults()
	s.awaitResumed(n)
	s.expectSurvived()
}

// One email breaks the connection each time. It fails after its tries, and nobody else notices.
func TestGate_OneBadEmail(t *testing.T) {
	t.Parallel()
	s := startSystem(t, map[string]string{"EMAIL_BACKOFF": "50ms"})
	s.await(s.send("sim-cut-before@example.com", nil), "FAILED")
	if shuts := s.count("SELECT shuts FROM provider_gate"); shuts != 0 {
		t.Errorf("it shut the gate %d times", shuts)
	}
}

// The account is paused while the worker is away: it finds out when it starts, and no email pays.
func TestGate_AccountDisabledAtStart(t *testing.T) {
	t.Parallel()
	s := startSystem(t, nil)
	const n = 50
	s.hold()
	s.acceptMany(n)
	s.set(func(st *sessim.Settings) { st.Paused = true })
	s.restartWorker(nil)
	s.awaitShut("SES_ACCOUNT_SENDING_PAUSED")
	if asked := s.ses.Summary().Requests; asked != 0 {
		t.Errorf("SES refused %d emails before", asked)
	}
	s.release()
	s.awaitProbe()
	if paid := s.count("SELECT count(*) FROM email_outbox WHERE status = 'FAILED' OR attempts > 0"); paid > 1 { // one may be in work
		t.Errorf("%d emails paid: %s", paid, s.census())
	}
	s.set(func(st *sessim.Settings) { st.Paused = false })
	s.awaitResumed(n)
	s.sentOnce(n)
}
