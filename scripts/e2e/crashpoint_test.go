package e2e_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"sync"
	"testing"
	"time"

	"email-gateway/shared/crashpoint"
	"email-gateway/shared/servertest"
)

// The api dies with twenty requests in its hands. Who got a 202 has one row; who asks
// again with the same Idempotency-Key gets one, and one mail, whatever the first time
// came to.
func TestCrashPoints_Accept(t *testing.T) {
	t.Parallel()
	s := startSystem(t, nil)
	const n = 20
	for round, point := range []crashpoint.Point{crashpoint.AcceptBegun, crashpoint.AcceptCommitted} {
		t.Run(string(point), func(t *testing.T) {
			s.api.stop()
			s.api = s.doomed("api", point, n/2, nil)
			request := func(i int) (id string, err error) {
				key := map[string]string{"Idempotency-Key": fmt.Sprintf("%s-%d", point, i)}
				status, answer, err := s.try(http.MethodPost, "/v1/email/send", newBody(fmt.Sprintf("cliente%d@example.com", i), nil), key)
				if err != nil {
					return "", err
				}
				var accepted struct{ OutboxID string }
				if err := json.Unmarshal(answer, &accepted); err != nil || status != http.StatusAccepted {
					return "", fmt.Errorf("%d %s", status, answer)
				}
				return accepted.OutboxID, nil
			}
			first := make([]string, n) // "" = no answer
			var group sync.WaitGroup
			for i := range n {
				group.Go(func() { first[i], _ = request(i) })
			}
			group.Wait()
			s.api.dies(point)

			answered := slices.DeleteFunc(slices.Clone(first), func(id string) bool { return id == "" })
			rows := s.count("SELECT count(*) FROM email_outbox") - round*n
			switch {
			case point == crashpoint.AcceptBegun && rows >= n:
				t.Errorf("%d rows: the request that died had written one", rows)
			case point == crashpoint.AcceptCommitted && rows <= len(answered):
				t.Errorf("%d rows for %d answers: the request that died had not written one", rows, len(answered))
			}
			s.api = startProgram(s.t, "api", s.env)
			for i, id := range first {
				again, err := request(i)
				if err != nil || id != "" && again != id {
					t.Errorf("asked again: %s, %v; the first answer was %q", again, err, id)
				}
				s.email(again)
			}
			if rows := s.count("SELECT count(*) FROM email_outbox"); rows != (round+1)*n {
				t.Errorf("%d rows, want %d", rows, (round+1)*n)
			}
		})
	}
	s.awaitAll(2*n, time.Minute, "SENT")
	s.sentOnce(2 * n)
}

// The dispatcher dies with twenty emails in its hands. Tasks that it made stand on the
// queue, whatever their rows say; the worker may even be done with them. Each email is
// sent once.
func TestCrashPoints_Dispatch(t *testing.T) {
	t.Parallel()
	s := startSystem(t, nil)
	const (
		n     = 20
		marks = "SELECT count(*) FROM email_outbox WHERE enqueued_at IS NOT NULL"
	)
	sent := 0
	for _, c := range []struct {
		point crashpoint.Point
		nth   int
		tasks int // at least so many are on the queue
	}{
		{crashpoint.DispatchLocked, 1, 0},
		{crashpoint.DispatchQueued, 1, 1},
		{crashpoint.DispatchQueued, n/2 + 1, n/2 + 1},
		{crashpoint.DispatchMarked, 1, n},
		{crashpoint.DispatchCommitted, 1, n},
	} {
		t.Run(fmt.Sprintf("%s:%d", c.point, c.nth), func(t *testing.T) {
			s.dispatcher.stop()
			marked := s.count(marks)
			for i := range n {
				s.send(fmt.Sprintf("cliente%d@example.com", i), nil)
			}
			s.dispatcher = s.doomed("dispatcher", c.point, c.nth, nil)
			s.dispatcher.dies(c.point)
			// The worker sends what stands there, with nobody to tell it more.
			s.awaitRequests(int64(sent + c.tasks))
			if c.point == crashpoint.DispatchCommitted {
				marked += n
			}
			if now := s.count(marks); now != marked {
				t.Errorf("%d rows say that they were enqueued, want %d", now, marked)
			}
			s.dispatcher = startProgram(s.t, "dispatcher", s.env)
			sent += n
			s.awaitAll(sent, time.Minute, "SENT")
			s.sentOnce(sent)
		})
	}
	s.awaitQuietQueues(time.Minute)
	s.sentOnce(sent)
}

// sendCrash is what becomes of an email whose worker dies.
type sendCrash struct {
	point     crashpoint.Point
	delivery  string // "" is at_least_once
	left      string // the row's status behind the crash
	status    string
	accepted  int // by SES
	unknown   bool
	duplicate bool
}

// Those whose row is in no worker's hands come last: their tasks come again soonest, and
// must not meet the next one's crash.
var sendCrashes = []sendCrash{
	{point: crashpoint.SendRecorded, left: "SENT", status: "SENT", accepted: 1},
	{point: crashpoint.SendClaimed, left: "PROCESSING", status: "SENT", accepted: 1, unknown: true, duplicate: true},
	{point: crashpoint.SendClaimed, delivery: atMostOnce, left: "PROCESSING", status: "FAILED", accepted: 0, unknown: true},
	{point: crashpoint.SendAnswered, left: "PROCESSING", status: "SENT", accepted: 2, unknown: true, duplicate: true},
	{point: crashpoint.SendAnswered, delivery: atMostOnce, left: "PROCESSING", status: "FAILED", accepted: 1, unknown: true},
	{point: crashpoint.SendLoaded, left: "ENQUEUED", status: "SENT", accepted: 1},
	{point: crashpoint.SendTurn, left: "ENQUEUED", status: "SENT", accepted: 1},
}

// The worker dies at each step of an email. It is sent once, or says that it may have
// been sent twice, or, where that is not wanted, that nobody knows.
func TestCrashPoints_Send(t *testing.T) {
	t.Parallel()
	s := startSystem(t, map[string]string{"EMAIL_BACKOFF": "100ms", "RESCUE_AFTER": "2s"})
	s.worker.stop()
	ids := make([]string, len(sendCrashes))
	for i, c := range sendCrashes {
		worker := s.doomed("worker", c.point, 1, nil)
		ids[i] = s.send(fmt.Sprintf("cliente%d@example.com", i), func(body map[string]any) {
			if c.delivery != "" {
				body["delivery"] = c.delivery
			}
		})
		worker.dies(c.point)
		eventually(t, 10*time.Second, func() error { // the dispatcher may still be committing
			if got := s.email(ids[i]); got.Status != c.left {
				return fmt.Errorf("%s left the email in %s, want %s", c.point, got.Status, c.left)
			}
			return nil
		})
	}
	s.worker = startProgram(t, "worker", s.env)
	for i, c := range sendCrashes {
		t.Run(string(c.point)+" "+c.delivery, func(t *testing.T) {
			got := s.await(ids[i], 2*time.Minute, c.status)
			accepted := 0
			for _, request := range s.ses.Requests(ids[i]) {
				if request.Accepted {
					accepted++
				}
			}
			if accepted != c.accepted || got.OutcomeUnknown != c.unknown || got.PossibleDuplicate != c.duplicate {
				t.Errorf("accepted %d times, outcomeUnknown %v, possibleDuplicate %v; want %+v", accepted, got.OutcomeUnknown, got.PossibleDuplicate, c)
			}
			if c.unknown != slices.Contains(got.timeline(), "OUTCOME_UNKNOWN") || c.status == "FAILED" && got.ErrorCode != "OUTCOME_UNKNOWN" {
				t.Errorf("timeline %v, code %s", got.timeline(), got.ErrorCode)
			}
		})
	}
	if letters := s.count("SELECT count(*) FROM dead_letters"); letters != 2 {
		t.Errorf("%d dead letters, want those of the two that failed", letters)
	}
}

// One mailing, and one crash after the other at each step of its way to emails; its job
// is queued twice as well. Every good row becomes one email.
func TestCrashPoints_Expand(t *testing.T) {
	t.Parallel()
	env := bulk(t, servertest.Start(t, "rabbitmq").URL)
	// A window of 400 emails and a lead of 1,500: while nothing is sent, the second job
	// finds no room for its whole batch and leaves the rest to a third.
	env["SES_MAX_SEND_RATE"], env["MAILING_LEAD"], env["MAILING_RECOVERY_INTERVAL"] = "200", "1500", "1s"
	s := startSystem(t, env)
	sheet := newSpreadsheet(t, 3_000)
	s.worker.stop()
	s.dispatcher.stop()
	st := s.ses.Settings()
	st.GetAccount = "404" // then the rate is the environment's
	if err := s.ses.SetSettings(st); err != nil {
		t.Fatal(err)
	}
	s.setSending(false)
	id := s.mail("clientes.csv", sheet, nil)

	queued := s.doomed("dispatcher", crashpoint.DispatchMarked, 1, nil)
	queued.dies(crashpoint.DispatchMarked) // the broker has the job, and its row is due
	s.dispatcher = startProgram(t, "dispatcher", s.env)

	all := len(sheet.people)
	for _, c := range []struct {
		point   crashpoint.Point
		lead    string // "" is the system's
		atMost  int    // rows that are emails behind the crash
		atLeast int
	}{
		{point: crashpoint.ExpandLocked},
		{point: crashpoint.ExpandRead},
		{point: crashpoint.ExpandChecked},
		{point: crashpoint.ExpandCommitted, atLeast: 1000, atMost: 1000},
		{point: crashpoint.ExpandContinued, atLeast: 1001, atMost: all - 1},
		{point: crashpoint.ExpandFinished, atLeast: all, atMost: all, lead: "50000"},
	} {
		t.Run(string(c.point), func(t *testing.T) {
			change := map[string]string{}
			if c.lead != "" {
				change["MAILING_LEAD"] = c.lead
			}
			s.doomed("worker", c.point, 1, change).dies(c.point)
			rows := s.count("SELECT count(*) FROM email_outbox WHERE target = 'email:send'")
			if expanded := s.expanded(id); expanded != rows || rows < c.atLeast || rows > c.atMost {
				t.Errorf("%d emails of %d expanded rows, want %d to %d", rows, expanded, c.atLeast, c.atMost)
			}
		})
	}
	s.setSending(true)
	s.worker = startProgram(t, "worker", s.env)
	done := s.awaitMailing(id, 2*time.Minute, "COMPLETED")
	if done.Total != sheet.rows || done.Sent != all || done.Invalid != sheet.invalid || done.Duplicates != sheet.duplicates ||
		done.Failed+done.Suppressed+done.Expired+done.Cancelled+done.Unknown+done.Queued != 0 {
		t.Errorf("%+v", done)
	}
	s.deliveredOnce(sheet)
}
