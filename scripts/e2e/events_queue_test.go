package e2e_test

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"email-gateway/scripts/sessim"
	"email-gateway/shared/crashpoint"
	"email-gateway/shared/servertest"
	"email-gateway/shared/store/storetest"
)

// eventOf is SES's event of the delivery of an email's only attempt.
func eventOf(s *system, id string) string {
	s.t.Helper()
	var attempt, company string
	err := s.db.SQL.QueryRowContext(s.t.Context(), `SELECT e.metadata ->> 'attemptId', l.company_id FROM email_events e JOIN email_logs l ON l.outbox_id = e.email_log_id
		WHERE l.outbox_id = $1 AND e.type = 'SENT_ATTEMPT'`, id).Scan(&attempt, &company)
	if err != nil {
		s.t.Fatal(err)
	}
	return fmt.Sprintf(`{"eventType":"Delivery","mail":{"timestamp":"2026-11-21T10:00:00.000Z","messageId":%q,
		"tags":{"outbox_id":[%q],"attempt_id":[%q],"company_id":[%q]}},"delivery":{"timestamp":"2026-11-21T10:00:05.123Z","recipients":["ana@example.com"]}}`,
		s.email(id).SESMessageID, id, attempt, company)
}

// The worker dies between the commit and the deletion of a batch; its successor is given the messages again, and each event
// is in the timeline once.
func TestEventsQueue_WorkerDies(t *testing.T) {
	t.Parallel()
	s := startSystem(t, nil)
	q := servertest.NewQueue(t, servertest.SharedSQS(t), map[string]string{"VisibilityTimeout": "2"})
	publish := q.Subscribe(false)
	const n = 25
	var ids []string
	for i := range n {
		ids = append(ids, s.send(fmt.Sprintf("cliente%d@example.com", i), nil))
	}
	for _, id := range ids {
		s.await(id, "SENT")
		publish(eventOf(s, id))
	}
	env := map[string]string{"SES_EVENTS_QUEUE": q.URL}
	s.worker.stop()
	s.worker = s.startCrashing("worker", crashpoint.FeedbackRecorded, 2, env)
	s.worker.awaitCrash(crashpoint.FeedbackRecorded)
	if q.Len() == 0 {
		t.Fatal("all messages were deleted before the crash")
	}
	s.worker = startProgram(t, "worker", s.env, env)
	eventually(t, func() error {
		if left := q.Len(); left > 0 {
			return fmt.Errorf("%d messages left", left)
		}
		return nil
	})
	for _, id := range ids {
		if got := strings.Join(s.email(id).timeline(), " "); !strings.HasSuffix(got, "SENT DELIVERED") || strings.Count(got, "DELIVERED") != 1 {
			t.Error(got)
		}
	}
	if repeated := storetest.Ask[int](s.t, s.db, "SELECT count(*) FROM ses_events"); repeated != n {
		t.Errorf("%d notifications of %d are kept", repeated, n)
	}
}

// The same events at the api's route and in the queue, and what reports an outage of the queue.
func TestEventsQueue_BesideSNSAndAway(t *testing.T) {
	t.Parallel()
	server := servertest.Start(t, "sqs")
	q := servertest.NamedQueue(t, server.URL, "events", nil)
	s := startSystem(t, map[string]string{"SES_CONFIGURATION_SET": "events", "SES_EVENTS_QUEUE": q.URL})
	s.subscribeFeedback()
	ids := []string{s.send("ana@example.com", nil), s.send("ana+sim-bounce@example.com", nil)}
	eventually(t, func() error { // the end of feedback windows depends on it
		if !storetest.Ask[bool](t, s.db, `SELECT EXISTS (SELECT FROM process_status WHERE service = 'worker' AND (details->>'sesEventsDrainedMs')::bigint < 60000)`) {
			return errors.New("the worker does not report that it drained the queue")
		}
		return nil
	})
	for i, want := range []string{"SENT DELIVERED", "SENT BOUNCED"} {
		eventually(t, func() error {
			if got := strings.Join(s.email(ids[i]).timeline(), " "); !strings.HasSuffix(got, want) {
				return fmt.Errorf("%s, events %+v", got, s.ses.Events())
			}
			return nil
		})
	}
	if err := s.ses.Publish(sessim.Publication{}); err != nil {
		t.Fatal(err)
	}
	late := s.send("bia@example.com", nil)
	s.await(late, "SENT")
	q.Send(eventOf(s, late))
	q.Send(eventOf(s, late))
	eventually(t, func() error {
		if got := strings.Join(s.email(late).timeline(), " "); q.Len() > 0 || !strings.HasSuffix(got, "SENT DELIVERED") || strings.Count(got, "DELIVERED") != 1 {
			return fmt.Errorf("%s, %d messages left", got, q.Len())
		}
		return nil
	})
	reported := func(want string, up float64) {
		t.Helper()
		eventually(t, func() error {
			_, body := s.call(http.MethodGet, "/health", nil, nil)
			if !strings.Contains(string(body), `"sesEvents":{"status":"`+want+`"}`) {
				return fmt.Errorf("/health: %s", body)
			}
			if got := s.worker.metric("gateway_dependency_up", "sesEvents"); got != up {
				return fmt.Errorf("gateway_dependency_up is %v", got)
			}
			return nil
		})
	}
	reported("connected", 1)
	server.Kill()
	reported("disconnected", 0)
	server.Start()
	servertest.NamedQueue(t, server.URL, "events", nil)
	reported("connected", 1)
}
