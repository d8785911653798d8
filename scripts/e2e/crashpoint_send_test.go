package e2e_test

import (
	"fmt"
	"slices"
	"testing"

	"email-gateway/shared/crashpoint"
	"email-gateway/shared/store/storetest"
)

// sendCrash is the expected result for an email whose worker crashes.
type sendCrash struct {
	point     crashpoint.Point
	ses       string // a fault of the simulator's that the address asks for; "" = it takes the email
	delivery  string // "" is at_least_once
	left      string // the row's status behind the crash
	status    string
	accepted  int // by SES
	unknown   bool
	duplicate bool
}

// Emails whose row no worker holds come last: their tasks are delivered again soonest and must not reach the next
// crash.
var sendCrashes = []sendCrash{
	{point: crashpoint.SendRecorded, ses: "message-rejected", left: "FAILED", status: "FAILED", accepted: 0},
	{point: crashpoint.SendRecorded, ses: "unavailable-json-x1", left: "RETRY_SCHEDULED", status: "SENT", accepted: 1},
	{point: crashpoint.SendRecorded, left: "SENT", status: "SENT", accepted: 1},
	{point: crashpoint.SendClaimed, left: "PROCESSING", status: "SENT", accepted: 1, unknown: true, duplicate: true},
	{point: crashpoint.SendClaimed, delivery: atMostOnce, left: "PROCESSING", status: "FAILED", accepted: 0, unknown: true},
	{point: crashpoint.SendAnswered, left: "PROCESSING", status: "SENT", accepted: 2, unknown: true, duplicate: true},
	{point: crashpoint.SendAnswered, delivery: atMostOnce, left: "PROCESSING", status: "FAILED", accepted: 1, unknown: true},
	{point: crashpoint.SendLoaded, left: "ENQUEUED", status: "SENT", accepted: 1},
	{point: crashpoint.SendTurn, left: "ENQUEUED", status: "SENT", accepted: 1},
}

// The worker crashes at each step of an email. It is sent once, or flagged as possibly sent twice, or, with
// at_most_once, its outcome is recorded as unknown.
func TestCrashPoints_Send(t *testing.T) {
	t.Parallel()
	s := startSystem(t, map[string]string{"EMAIL_BACKOFF": "100ms", "RESCUE_AFTER": "2s"})
	s.worker.stop()
	ids := make([]string, len(sendCrashes))
	for i, c := range sendCrashes {
		worker := s.startCrashing("worker", c.point, 1, nil)
		to := fmt.Sprintf("cliente%d@example.com", i)
		if c.ses != "" {
			to = fmt.Sprintf("cliente%d+sim-%s@example.com", i, c.ses)
		}
		ids[i] = s.send(to, func(body map[string]any) {
			if c.delivery != "" {
				body["delivery"] = c.delivery
			}
		})
		worker.awaitCrash(c.point)
		eventually(t, func() error { // the dispatcher may still be committing
			if got := s.email(ids[i]); got.Status != c.left {
				return fmt.Errorf("%s left the email in %s, want %s", c.point, got.Status, c.left)
			}
			return nil
		})
	}
	s.worker = startProgram(t, "worker", s.env)
	for i, c := range sendCrashes {
		t.Run(string(c.point)+" "+c.delivery+c.ses, func(t *testing.T) {
			got := s.await(ids[i], c.status)
			accepted := 0
			for _, request := range s.ses.Requests(ids[i]) {
				if request.Accepted {
					accepted++
				}
			}
			if accepted != c.accepted || got.OutcomeUnknown != c.unknown || got.PossibleDuplicate != c.duplicate {
				t.Errorf("accepted %d times, outcomeUnknown %v, possibleDuplicate %v; want %+v", accepted, got.OutcomeUnknown, got.PossibleDuplicate, c)
			}
			if c.unknown != slices.Contains(got.timeline(), "OUTCOME_UNKNOWN") || c.status == "FAILED" && c.unknown != (got.ErrorCode == "OUTCOME_UNKNOWN") {
				t.Errorf("timeline %v, code %s", got.timeline(), got.ErrorCode)
			}
		})
	}
	if deadLetters := storetest.Ask[int](s.t, s.db, "SELECT count(*) FROM dead_letters"); deadLetters != 3 {
		t.Errorf("%d dead letters, want those of the three that failed", deadLetters)
	}
}
