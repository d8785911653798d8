package httpapi_test

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"

	"email-gateway/shared/email"
	"email-gateway/shared/store/outbox"
	"email-gateway/shared/store/tenant"
)

func events(types ...email.EventType) []email.Event {
	var list []email.Event
	for _, t := range types {
		list = append(list, email.Event{Type: t, At: time.Now()})
	}
	return list
}

func (g *gateway) show(tb testing.TB, id string) map[string]any {
	tb.Helper()
	r := g.do(tb, call{Path: "/v1/email/" + id})
	if r.Status != http.StatusOK {
		tb.Fatalf("%d %s", r.Status, r.Body)
	}
	return r.json(tb)
}

func (g *gateway) step(tb testing.TB, id, step string) reply {
	tb.Helper()
	return g.do(tb, call{Method: http.MethodPost, Path: "/v1/email/" + id + "/" + step})
}

// types are the event types of an email in a response.
func types(details map[string]any) []string {
	list, _ := details["events"].([]any)
	var names []string
	for _, e := range list {
		name, _ := e.(map[string]any)["type"].(string)
		names = append(names, name)
	}
	return names
}

func TestShow_FromAcceptanceToTheEnd(t *testing.T) {
	t.Parallel()
	g := start(t, nil)
	id := g.accept(t, emailBody(with("tags", []string{"a", "b"})))

	waiting := g.show(t, id)
	for field, want := range map[string]any{
		"outboxId": id, "jobId": id, "status": "PENDING", "to": "ana@example.com", "subject": "Sua fatura", "externalId": "CUST-1",
		"attempts": 0.0, "throttles": 0.0, "possibleDuplicate": false, "outcomeUnknown": false, "sentAt": nil, "errorCode": nil,
	} {
		if waiting[field] != want {
			t.Errorf("field %s is %v, want %v", field, waiting[field], want)
		}
	}
	if waiting["nextAttemptAt"] == nil || len(types(waiting)) != 0 {
		t.Errorf("%v", waiting)
	}

	g.Programs.advance(t, id, outbox.Transition{
		Guard: outbox.GuardAttempt, Token: g.Programs.claim(t, id), Status: email.Sent, SESMessageID: "ses-1", Duration: 25 * time.Millisecond,
		Events: []email.Event{{Type: email.EventSent, At: time.Now(), Metadata: map[string]any{"sesMessageId": "ses-1"}}},
	})
	sent := g.show(t, id)
	if sent["status"] != "SENT" || sent["sesMessageId"] != "ses-1" || sent["sentAt"] == nil || sent["attempts"] != 1.0 || sent["durationMs"] != 25.0 ||
		sent["nextAttemptAt"] != nil {
		t.Errorf("%v", sent)
	}
	if diff := cmp.Diff([]string{"RECEIVED", "VALIDATED", "SENT_ATTEMPT", "SENT"}, types(sent)); diff != "" {
		t.Error(diff)
	}

	g.Run(t, `DELETE FROM email_outbox`)
	if purged := g.show(t, id); purged["status"] != "SENT" || len(types(purged)) != 4 || purged["subject"] != "Sua fatura" {
		t.Errorf("after the purge: %v", purged)
	}
}

func TestShow_Failed(t *testing.T) {
	t.Parallel()
	g := start(t, nil)
	id := g.accept(t, emailBody(nil))
	g.Programs.giveUp(t, id)
	failed := g.show(t, id)
	if failed["status"] != "FAILED" || failed["errorCode"] != "SES_BAD_REQUEST" || failed["errorReason"] != "no" || failed["failedAt"] == nil {
		t.Errorf("%v", failed)
	}
}

// TestIsolation: objects of another company are not found.
func TestIsolation(t *testing.T) {
	t.Parallel()
	g := start(t, nil)
	id := g.accept(t, emailBody(nil))
	failed := g.accept(t, emailBody(nil))
	g.Programs.giveUp(t, failed)
	stranger := g.newKey(t, g.Database.Company(t), nil).String()
	for _, c := range []call{
		{Path: "/v1/email/" + id},
		{Path: "/v1/email/" + failed},
		{Method: http.MethodPost, Path: "/v1/email/" + id + "/cancel"},
		{Method: http.MethodPost, Path: "/v1/email/" + failed + "/retry"},
		{Path: "/v1/email/" + uuid.NewString()},
		{Path: "/v1/email/42"},
		{Path: "/v1/email/" + strings.ReplaceAll(id, "-", "")},
		{Path: "/v1/email/%00"},
		{Method: http.MethodPost, Path: "/v1/email/x'/cancel"},
	} {
		c.Key = stranger
		r := g.do(t, c)
		if p := r.problem(t); r.Status != http.StatusNotFound || p.Code != "NOT_FOUND" || p.Detail != "there is no such email" {
			t.Errorf("%s %s: %d %s", c.Method, c.Path, r.Status, r.Body)
		}
	}
	r := g.do(t, call{Path: "/v1/emails", Key: stranger})
	if list, _ := r.json(t)["emails"].([]any); len(list) != 0 {
		t.Errorf("listed: %s", r.Body)
	}
	if g.show(t, id)["status"] != "PENDING" || g.show(t, failed)["status"] != "FAILED" {
		t.Error("another company's key has rescheduled an email")
	}
}

func TestScopes(t *testing.T) {
	t.Parallel()
	g := start(t, nil)
	id := g.accept(t, emailBody(nil))
	only := func(scope string) string {
		return g.newKey(t, g.Company, func(k *tenant.APIKey) { k.Scopes = []string{scope} }).String()
	}
	sender, reader := only("emails:send"), only("emails:read")
	for _, c := range []call{
		{Path: "/v1/emails", Key: sender},
		{Path: "/v1/email/" + id, Key: sender},
		{Method: http.MethodPost, Path: "/v1/email/send", Key: reader, Body: emailBody(nil)},
		{Method: http.MethodPost, Path: "/v1/email/" + id + "/cancel", Key: reader},
		{Method: http.MethodPost, Path: "/v1/email/" + id + "/retry", Key: reader},
	} {
		if r := g.do(t, c); r.Status != http.StatusForbidden || r.problem(t).Code != "SCOPE_MISSING" {
			t.Errorf("%s %s: %d %s", c.Method, c.Path, r.Status, r.Body)
		}
		c.NoKey = true
		if r := g.do(t, c); r.Status != http.StatusUnauthorized {
			t.Errorf("%s %s without key: %d %s", c.Method, c.Path, r.Status, r.Body)
		}
	}
}

func TestCancel(t *testing.T) {
	t.Parallel()
	g := start(t, nil)
	id := g.accept(t, emailBody(nil))
	for range 2 {
		r := g.step(t, id, "cancel")
		details := r.json(t)
		if r.Status != http.StatusOK || details["status"] != "CANCELLED" || len(types(details)) != 1 {
			t.Fatalf("%d %s", r.Status, r.Body)
		}
		event, _ := details["events"].([]any)[0].(map[string]any)["metadata"].(map[string]any)
		if event["keyId"] != g.Key.ID || event["requestId"] == "" {
			t.Errorf("metadata %v", event)
		}
	}
	for name, move := range map[string]func(id string){
		"PROCESSING": func(id string) { g.Programs.claim(t, id) },
		"FAILED":     func(id string) { g.Programs.giveUp(t, id) },
		"SENT": func(id string) {
			g.Programs.advance(t, id, outbox.Transition{Guard: outbox.GuardAttempt, Token: g.Programs.claim(t, id), Status: email.Sent, Events: events(email.EventSent)})
		},
	} {
		id := g.accept(t, emailBody(nil))
		move(id)
		r := g.step(t, id, "cancel")
		if p := r.problem(t); r.Status != http.StatusConflict || p.Code != "CANCEL_TOO_LATE" || !strings.Contains(p.Detail, name) {
			t.Errorf("%s: %d %s", name, r.Status, r.Body)
		}
	}
}

func TestRetry(t *testing.T) {
	t.Parallel()
	g := start(t, nil)
	id := g.accept(t, emailBody(nil))
	if r := g.step(t, id, "retry"); r.Status != http.StatusConflict || r.problem(t).Code != "NOT_REPLAYABLE" {
		t.Fatalf("%d %s", r.Status, r.Body)
	}
	g.Programs.giveUp(t, id)
	g.Run(t, `UPDATE email_outbox SET expires_at = now() - interval '1 h', outcome_unknown = true`)
	woken := g.Wakes.Load()
	r := g.step(t, id, "retry")
	details := r.json(t)
	if r.Status != http.StatusAccepted || details["status"] != "PENDING" || details["attempts"] != 0.0 || details["possibleDuplicate"] != true {
		t.Fatalf("%d %s", r.Status, r.Body)
	}
	if expires, err := time.Parse(time.RFC3339, details["expiresAt"].(string)); err != nil || time.Until(expires) < 23*time.Hour {
		t.Errorf("expires %v", details["expiresAt"])
	}
	if all := types(details); all[len(all)-1] != "REPLAYED" {
		t.Errorf("events %v", all)
	}
	if g.Wakes.Load() != woken+1 {
		t.Error("the api has notified no dispatcher")
	}
	if r := g.step(t, id, "cancel"); r.Status != http.StatusOK {
		t.Errorf("cancel after retry: %d %s", r.Status, r.Body)
	}
	if r := g.step(t, id, "retry"); r.Status != http.StatusAccepted {
		t.Errorf("retry after cancel: %d %s", r.Status, r.Body)
	}
	g.Programs.giveUp(t, id)
	g.Run(t, `UPDATE email_outbox SET html = '', body_erased_at = now()`)
	if r := g.step(t, id, "retry"); r.Status != http.StatusConflict || r.problem(t).Detail != "the email's content has been deleted: send a new email, with another aggregate if it has one" {
		t.Errorf("without its body: %d %s", r.Status, r.Body)
	}
	g.Run(t, `DELETE FROM email_outbox`)
	if r := g.step(t, id, "retry"); r.Status != http.StatusConflict || r.problem(t).Code != "NOT_REPLAYABLE" {
		t.Errorf("after the purge: %d %s", r.Status, r.Body)
	}
	if r := g.step(t, id, "cancel"); r.Status != http.StatusConflict {
		t.Errorf("cancel after the purge: %d %s", r.Status, r.Body)
	}
}

// A retry reverses a cancel: a scheduled email is sent at its time and not at once.
func TestRetry_CancelledBeforeItsTime(t *testing.T) {
	t.Parallel()
	g := start(t, nil)
	sendAt := time.Now().Add(48 * time.Hour).UTC().Truncate(time.Second)
	id := g.accept(t, emailBody(func(f fields) { f["sendAt"] = sendAt.Format(time.RFC3339) }))
	if r := g.step(t, id, "cancel"); r.Status != http.StatusOK {
		t.Fatalf("cancel: %d %s", r.Status, r.Body)
	}
	r := g.step(t, id, "retry")
	if r.Status != http.StatusAccepted || r.json(t)["sendAt"] != sendAt.Format(time.RFC3339) {
		t.Fatalf("retry: %d %s", r.Status, r.Body)
	}
	if expires, err := time.Parse(time.RFC3339, r.json(t)["expiresAt"].(string)); err != nil || expires.Sub(sendAt) < 23*time.Hour {
		t.Errorf("expires %v", r.json(t)["expiresAt"])
	}
	var kept bool
	if err := g.SQL.QueryRowContext(t.Context(), `SELECT next_at = $2 FROM email_outbox WHERE id = $1`, id, sendAt).Scan(&kept); err != nil || !kept {
		t.Errorf("due at its time: %v, %v", kept, err)
	}
}

// The choices of the request that decide how an email is sent are shown until it is purged; in lists, too.
func TestShow_PolicyAndMailing(t *testing.T) {
	t.Parallel()
	g := start(t, nil)
	single := g.accept(t, emailBody(func(f fields) { f["priority"], f["delivery"] = 3, "at_most_once" }))
	part, mailing := g.accept(t, emailBody(nil)), uuid.NewString()
	g.Run(t, `UPDATE email_outbox SET priority = 8, payload = payload || jsonb_build_object('htmlRef', 'mailing:' || $2::text) WHERE id = $1`, part, mailing)
	check := func(what string, shown map[string]any, priority, policy, mailing any) {
		t.Helper()
		if shown["priority"] != priority || shown["deliveryPolicy"] != policy || shown["mailingId"] != mailing || shown["delivery"] != nil {
			t.Errorf("%s: %v", what, shown)
		}
	}
	list := g.do(t, call{Path: "/v1/emails"}).json(t)["emails"].([]any)
	check("single email in the list", list[1].(map[string]any), 3.0, "at_most_once", nil)
	check("email of a mailing in the list", list[0].(map[string]any), 8.0, "at_least_once", mailing)
	check("email of a mailing", g.show(t, part), 8.0, "at_least_once", mailing)
	check("single email", g.show(t, single), 3.0, "at_most_once", nil)
	g.Programs.giveUp(t, single)
	g.Run(t, `DELETE FROM email_outbox`)
	check("purged", g.show(t, single), nil, nil, nil)
}

// The sender, copies and attempts of an email are shown; the list and the email use the same statement for the attempts.
func TestShow_WhatWasAskedFor(t *testing.T) {
	t.Parallel()
	g := start(t, nil)
	sendAt := time.Now().Add(48 * time.Hour).UTC().Truncate(time.Second)
	id := g.accept(t, emailBody(func(f fields) {
		f["cc"], f["bcc"], f["replyTo"] = []string{"cc@example.com"}, []string{"bcc@example.com"}, "reply@example.com"
		f["sendAt"] = sendAt.Format(time.RFC3339)
	}))
	got := g.show(t, id)
	want := map[string]any{
		"cc": []any{"cc@example.com"}, "bcc": []any{"bcc@example.com"}, "replyTo": "reply@example.com", "sendAt": sendAt.Format(time.RFC3339),
		"tries": map[string]any{"spent": 0.0, "allowed": 5.0, "throttled": 0.0},
	}
	for name, value := range want {
		if diff := cmp.Diff(value, got[name]); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
	}
	if from, _ := got["from"].(string); !strings.Contains(from, "@") {
		t.Errorf("from = %v", got["from"])
	}
	// The time is not derived from the deadline: a program may use another TTL.
	g.Run(t, `UPDATE email_outbox SET expires_at = expires_at - interval '23 h' WHERE id = $1`, id)
	if got := g.show(t, id)["sendAt"]; got != sendAt.Format(time.RFC3339) {
		t.Errorf("with another TTL, sendAt = %v", got)
	}
	moved := sendAt.Add(24 * time.Hour)
	if r := g.do(t, call{Method: http.MethodPatch, Path: "/v1/email/" + id, Body: `{"sendAt":"` + moved.Format(time.RFC3339) + `"}`}); r.Status != http.StatusOK {
		t.Fatalf("%d %s", r.Status, r.Body)
	}
	if got := g.show(t, id)["sendAt"]; got != moved.Format(time.RFC3339) {
		t.Errorf("moved to %s, sendAt = %v", moved, got)
	}

	now := g.accept(t, emailBody(nil))
	g.Run(t, `UPDATE email_outbox SET expires_at = expires_at + interval '1 h' WHERE id = $1`, now)
	if got := g.show(t, now)["sendAt"]; got != nil {
		t.Errorf("not scheduled, sendAt = %v", got)
	}
	g.Programs.advance(t, now, outbox.Transition{
		Guard: outbox.GuardAttempt, Token: g.Programs.claim(t, now), Status: email.RetryScheduled, AddThrottles: 1, Events: events(email.EventRetryScheduled),
	})
	g.Run(t, `UPDATE email_outbox SET next_at = now() WHERE id = $1`, now)
	g.Programs.giveUp(t, now)
	shown := g.show(t, now)
	tries := map[string]any{"spent": 1.0, "allowed": 5.0, "throttled": 1.0}
	if diff := cmp.Diff(tries, shown["tries"]); diff != "" || shown["sendAt"] != nil {
		t.Errorf("%s, sendAt %v", diff, shown["sendAt"])
	}
	list := g.do(t, call{Path: "/v1/emails?status=FAILED"}).json(t)["emails"].([]any)
	if diff := cmp.Diff(tries, list[0].(map[string]any)["tries"]); diff != "" {
		t.Error(diff)
	}
}
