package e2e_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"email-gateway/scripts/sessim"
	"email-gateway/shared/crashpoint"
	"email-gateway/shared/store/storetest"
)

// The worker is killed while SES handles the last try of two emails, one of which it accepts. Neither is tried again:
// both are FAILED with an unknown outcome and have a dead letter.
func TestWorkerKilledOnLastAttempt(t *testing.T) {
	t.Parallel()
	s := startSystem(t, map[string]string{"EMAIL_MAX_ATTEMPTS": "2", "EMAIL_BACKOFF": "100ms", "RESCUE_AFTER": "2s"})
	ids := map[string]string{}
	for _, fault := range []string{"hang", "hang-after"} {
		to := fault + "@example.com"
		for _, rule := range []sessim.Rule{{Fault: "unavailable-json", Times: 1}, {Fault: fault}} {
			rule.Match.To = to
			if err := s.ses.Inject(rule); err != nil {
				t.Fatal(err)
			}
		}
		ids[fault] = s.send(to, nil)
	}
	s.awaitRequests(4)
	s.worker.kill()
	s.worker = startProgram(t, "worker", s.env)
	for fault, id := range ids {
		got := s.await(id, "FAILED")
		if got.ErrorCode != "OUTCOME_UNKNOWN" || !got.OutcomeUnknown || got.Attempts != 2 {
			t.Errorf("%s: %+v", fault, got)
		}
	}
	s.awaitQuietQueues()
	for fault, id := range ids {
		if requests := s.ses.Requests(id); len(requests) != 2 {
			t.Errorf("%s: %d requests, want 2", fault, len(requests))
		}
	}
	if n := storetest.Ask[int](s.t, s.db, "SELECT count(*) FROM dead_letters WHERE reason = 'OUTCOME_UNKNOWN' AND resolved_at IS NULL"); n != 2 {
		t.Errorf("%d dead letters, want 2", n)
	}
}

// frozenEmail is an email whose worker is frozen.
type frozenEmail struct {
	at       crashpoint.Point
	delivery string
	outcome  string // the status that the others record meanwhile
	status   string // behind the worker's waking
	accepted int
	late     bool // the frozen worker's result is still recorded

	id     string
	worker *program
}

// Workers are frozen for longer than their leases, and then continue. One has not called SES yet, and does not any
// more. Two have its response: it is recorded if no other outcome was reported, and nothing is sent twice without a
// flag.
func TestWorkerFrozen(t *testing.T) {
	t.Parallel()
	const frozen = 70 * time.Second
	s := startSystem(t, map[string]string{"EMAIL_BACKOFF": "100ms", "RESCUE_AFTER": "2s"})
	s.worker.stop()
	emails := []*frozenEmail{
		{at: crashpoint.SendClaimed, outcome: "SENT", status: "SENT", accepted: 1},
		{at: crashpoint.SendClaimed, delivery: atMostOnce, outcome: "FAILED", status: "FAILED", accepted: 0},
		{at: crashpoint.SendAnswered, outcome: "SENT", status: "SENT", accepted: 2},
		{at: crashpoint.SendAnswered, delivery: atMostOnce, outcome: "FAILED", status: "SENT", accepted: 1, late: true},
	}
	for i, e := range emails {
		e.worker = s.startCrashing("worker", e.at, 1, map[string]string{"CRASH_WITH": "STOP"})
		e.id = s.send(fmt.Sprintf("cliente%d@example.com", i), func(body map[string]any) {
			if e.delivery != "" {
				body["delivery"] = e.delivery
			}
		})
		e.worker.awaitFreeze(e.at)
	}
	start := time.Now()
	s.worker = startProgram(t, "worker", s.env)
	for _, e := range emails {
		s.await(e.id, e.outcome)
	}
	<-time.After(time.Until(start.Add(frozen))) // the fault itself
	for _, e := range emails {
		e.worker.signal(syscall.SIGCONT)
		e.worker.stop() // once it has done what it was at
	}
	for _, e := range emails {
		name := fmt.Sprintf("%s %s", e.at, e.delivery)
		got := s.email(e.id)
		accepted := 0
		for _, request := range s.ses.Requests(e.id) {
			if request.Accepted {
				accepted++
			}
		}
		if got.Status != e.status || accepted != e.accepted {
			t.Errorf("%s: %s, accepted %d times, want %s and %d; timeline %v", name, got.Status, accepted, e.status, e.accepted, got.timeline())
		}
		if e.delivery != atMostOnce && !got.PossibleDuplicate {
			t.Errorf("%s: it may have been sent twice and is not flagged: %+v", name, got)
		}
		if timeline := got.timeline(); e.late && !slices.Equal(timeline[max(0, len(timeline)-2):], []string{"FAILED", "SENT"}) {
			t.Errorf("%s: timeline %v, want it to end with the late answer", name, timeline)
		}
	}
	if n := storetest.Ask[int](s.t, s.db, "SELECT count(*) FROM dead_letters WHERE resolved_at IS NULL"); n != 1 {
		t.Errorf("%d dead letters are open, want that of the one email that was not sent", n)
	}
}

// SES is unreachable for what would be a quarter of an hour, at a thirtieth of the real waits: first the port is
// closed, then a proxy answers that there is no server. All tries of an email would be spent in a fifth of that time;
// none fails.
func TestSESUnreachable(t *testing.T) {
	t.Parallel()
	const n, outage = 100, 15 * time.Minute / 30
	s := startSystem(t, map[string]string{"EMAIL_BACKOFF": "33ms,167ms,1s,4s,20s"})
	at, refuse := serveSESUntil(t, freeAddress(t), s.ses)
	s.restartWorker(map[string]string{"SES_ENDPOINT": "http://" + at})
	refuse()
	start := time.Now()
	for i := range n {
		s.send(fmt.Sprintf("cliente%d@example.com", i), nil)
	}
	<-time.After(time.Until(start.Add(outage / 2))) // the first half of the fault
	st := s.ses.Settings()
	st.Unavailable = true
	if err := s.ses.SetSettings(st); err != nil {
		t.Fatal(err)
	}
	serveSES(t, at, s.ses)
	<-time.After(time.Until(start.Add(outage))) // and the second
	if failed := storetest.Ask[int](s.t, s.db, "SELECT count(*) FROM email_outbox WHERE status NOT IN ('PENDING', 'ENQUEUED', 'PROCESSING', 'RETRY_SCHEDULED')"); failed > 0 {
		t.Errorf("%s", s.statusCounts())
	}
	st.Unavailable = false
	if err := s.ses.SetSettings(st); err != nil {
		t.Fatal(err)
	}
	s.awaitAll(n, "SENT")
	s.sentOnce(n)
}

// The broker closes every connection while the expander has an unacknowledged job. The job is delivered again; each
// row becomes one email.
func TestRabbitMQConnectionCut(t *testing.T) {
	t.Parallel()
	rabbitmq, ctl := broker(t)
	s := startSystem(t, bulk(t, rabbitmq))
	// The expander blocks in its first batch, whose recipients it cannot write.
	tx, err := s.db.SQL.BeginTx(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tx.Rollback() }()
	if _, err := tx.ExecContext(t.Context(), "LOCK TABLE recipients IN SHARE MODE"); err != nil {
		t.Fatal(err)
	}
	sheet := newSpreadsheet(t, 1_200)
	id := s.mail("clientes.csv", sheet, nil)
	eventually(t, func() error {
		if n := storetest.Ask[int](s.t, s.db, "SELECT count(*) FROM mailings WHERE status = 'PROCESSING'"); n != 1 {
			return errors.New("no job is in work")
		}
		return nil
	})
	ctl("close_all_connections", "the test wants it")
	if err := tx.Rollback(); err != nil {
		t.Fatal(err)
	}
	eventually(t, func() error {
		if log := s.worker.logged(); !strings.Contains(log, "connection to rabbitmq lost") || !strings.Contains(log, "tasks done but not acknowledged") {
			return errors.New("the worker has not missed its connection")
		}
		return nil
	})
	done := s.awaitMailing(id, "COMPLETED")
	if done.Sent != len(sheet.people) || done.Total != sheet.rows || done.Invalid != sheet.invalid || done.Duplicates != sheet.duplicates {
		t.Errorf("%+v", done)
	}
	s.deliveredOnce(sheet)
}
