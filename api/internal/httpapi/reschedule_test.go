package httpapi_test

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"email-gateway/shared/email"
	"email-gateway/shared/store/outbox"
)

// reschedule changes the time of an email.
func (g *gateway) reschedule(tb testing.TB, id, body string) reply {
	tb.Helper()
	return g.do(tb, call{Method: http.MethodPatch, Path: "/v1/email/" + id, Body: body})
}

func sendAt(at time.Time) string { return `{"sendAt": "` + at.Format(time.RFC3339) + `"}` }

func TestReschedule(t *testing.T) {
	t.Parallel()
	g := start(t, nil)
	id := g.accept(t, emailBody(with("sendAt", time.Now().Add(48*time.Hour).Format(time.RFC3339))))
	at := time.Now().Add(72 * time.Hour).Truncate(time.Second)
	moved := g.reschedule(t, id, sendAt(at))
	if s := g.stored(t, id); moved.Status != http.StatusOK || s.Status != "PENDING" || !s.Next.Equal(at) || !s.Expires.Equal(at.Add(24*time.Hour)) {
		t.Errorf("%d %s; %+v", moved.Status, moved.Body, s)
	}
	if next, err := time.Parse(time.RFC3339, moved.json(t)["nextAttemptAt"].(string)); err != nil || !next.Equal(at) {
		t.Errorf("shown as due at %v", moved.json(t)["nextAttemptAt"])
	}
	events, _ := moved.json(t)["events"].([]any)
	if len(events) != 1 {
		t.Fatalf("events %v", events)
	}
	event, _ := events[0].(map[string]any)
	if metadata, _ := event["metadata"].(map[string]any); event["type"] != "RESCHEDULED" || metadata["newSendAt"] != at.UTC().Format("2006-01-02T15:04:05.000Z") ||
		metadata["oldSendAt"] == nil || metadata["by"] != "api" || metadata["keyId"] == nil {
		t.Errorf("event %v", event)
	}
	if g.Wakes.Load() != 1 { // its lane may be due earlier now
		t.Errorf("%d dispatcher notifications, want 1", g.Wakes.Load())
	}
	r := g.reschedule(t, id, `{"sendAt": "2020-01-01T00:00:00Z"}`)
	if s := g.stored(t, id); r.Status != http.StatusOK || time.Until(s.Next) > 0 || time.Until(s.Expires) > 24*time.Hour || g.Wakes.Load() != 2 {
		t.Errorf("moved to a past time: %d, %+v, %d dispatcher notifications", r.Status, s, g.Wakes.Load())
	}
	for body, field := range map[string]string{
		`{}`: "sendAt", `{"sendAt": 5}`: "sendAt", `{"sendAt": "tomorrow"}`: "sendAt", `{"sendAt": "2999-01-01T00:00:00Z"}`: "sendAt", `{"subject": "x"}`: "subject",
	} {
		r := g.reschedule(t, id, body)
		if p := r.problem(t); r.Status != http.StatusUnprocessableEntity || p.Errors[0].Field != field {
			t.Errorf("%s: %d %s", body, r.Status, r.Body)
		}
	}
	if r := g.reschedule(t, uuid.NewString(), sendAt(at)); r.Status != http.StatusNotFound {
		t.Errorf("an email id that does not exist: %d %s", r.Status, r.Body)
	}
}

// A waiting email can be rescheduled, and the dispatcher follows the new time; one that is being processed or is
// final cannot.
func TestReschedule_ByStatus(t *testing.T) {
	t.Parallel()
	g := start(t, nil)
	at := time.Now().Add(time.Hour).Truncate(time.Second)
	enqueued := g.accept(t, emailBody(nil))
	g.Run(t, `UPDATE email_outbox SET status = 'ENQUEUED', enqueued_at = now() WHERE id = $1`, enqueued)
	retried := g.accept(t, emailBody(nil))
	g.Programs.advance(t, retried, outbox.Transition{
		Guard: outbox.GuardAttempt, Token: g.Programs.claim(t, retried), Status: email.RetryScheduled, Delay: time.Minute, Events: events(email.EventRetryScheduled),
	})
	for _, id := range []string{enqueued, retried} {
		r := g.reschedule(t, id, sendAt(at))
		if s := g.stored(t, id); r.Status != http.StatusOK || s.Status != "PENDING" || !s.Next.Equal(at) {
			t.Errorf("%d %s; %+v", r.Status, r.Body, s)
		}
	}
	if shown := g.show(t, retried); shown["attempts"] != float64(1) {
		t.Errorf("the attempts were reset: %v", shown["attempts"])
	}
	inWork, failed, cancelled := g.accept(t, emailBody(nil)), g.accept(t, emailBody(nil)), g.accept(t, emailBody(nil))
	g.Programs.claim(t, inWork)
	g.Programs.giveUp(t, failed)
	g.step(t, cancelled, "cancel")
	purged := g.accept(t, emailBody(nil))
	g.Programs.giveUp(t, purged)
	g.Run(t, `DELETE FROM email_outbox WHERE id = $1`, purged)
	for id, status := range map[string]string{inWork: "PROCESSING", failed: "FAILED", cancelled: "CANCELLED", purged: "FAILED"} {
		r := g.reschedule(t, id, sendAt(at))
		if p := r.problem(t); r.Status != http.StatusConflict || p.Code != "RESCHEDULE_TOO_LATE" || !strings.HasPrefix(p.Detail, "the email is "+status+"; only PENDING") {
			t.Errorf("%s: %d %s", status, r.Status, r.Body)
		}
	}
}
