package storetest

import (
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"email-gateway/shared/email"
	"email-gateway/shared/store/outbox"
	"email-gateway/shared/store/recipient"
)

// ClaimOf returns a worker's claim of an email for the recipient with this external id.
func ClaimOf(company, id, token uuid.UUID, externalID string) outbox.Transition {
	return outbox.Transition{
		ID: id, Guard: outbox.GuardClaim, Token: token, Status: email.Processing, AddAttempts: 1,
		Events: []email.Event{
			Event(email.EventReceived, map[string]any{"attempt": 1, "jobId": id}),
			Event(email.EventValidated, map[string]any{"validations": []string{"INTEGRITY", "OUTBOX", "RECIPIENT", "TEMPLATE"}}),
			Event(email.EventSentAttempt, map[string]any{"attempt": 1, "attemptId": token}),
		},
		Recipient: &recipient.Recipient{
			ID: recipient.ID(company, externalID, "", ""), ExternalID: externalID, Nome: "Ana", Email: "ana@example.com",
		},
	}
}

// SentOf returns the end of an attempt that the provider accepted.
func SentOf(id, token uuid.UUID) outbox.Transition {
	t := EndOf(id, token, email.Sent, Event(email.EventSent, map[string]any{"sesMessageId": "ses-" + id.String(), "attempt": 1}))
	t.SESMessageID = "ses-" + id.String()
	return t
}

// FailedOf returns the end of an attempt that the provider refused permanently.
func FailedOf(id, token uuid.UUID) outbox.Transition {
	t := EndOf(id, token, email.Failed, Event(email.EventFailed, map[string]any{"errorCode": "SES_REJECTED"}))
	t.ErrorCode, t.ErrorReason, t.DeadLetter = "SES_REJECTED", "no such mailbox", true
	return t
}

// EndOf returns the end of an attempt.
func EndOf(id, token uuid.UUID, to email.Status, events ...email.Event) outbox.Transition {
	return outbox.Transition{
		ID: id, Guard: outbox.GuardAttempt, Token: token, Status: to, Events: events, Duration: 80 * time.Millisecond,
	}
}

// CancelOf returns the cancellation of an email that was not sent.
func CancelOf(id uuid.UUID) outbox.Transition {
	return outbox.Transition{ID: id, Guard: outbox.GuardOpen, Status: email.Cancelled, Events: []email.Event{Event(email.EventCancelled, nil)}}
}

// ReplayOf returns the replay of a failed, expired or cancelled email, with a deadline in a day.
func ReplayOf(id uuid.UUID) outbox.Transition {
	return outbox.Transition{
		ID: id, Guard: outbox.GuardReplay, Status: email.Pending, Renew: 24 * time.Hour, Events: []email.Event{Event(email.EventReplayed, nil)},
	}
}

// Event returns an event with the current time.
func Event(kind email.EventType, metadata map[string]any) email.Event {
	return email.Event{Type: kind, At: time.Now().UTC(), Metadata: metadata}
}

// Apply runs transitions one after the other. Each must be applied.
func Apply(tb testing.TB, d Database, ts ...outbox.Transition) {
	tb.Helper()
	for _, t := range ts {
		got, err := d.Store.Advance(tb.Context(), t)
		if err != nil || !got.Applied || got.Status != t.Status {
			tb.Fatalf("%s %s: %+v, %v", t.Guard, t.Status, got, err)
		}
	}
}

// Timeline returns the types of an email's events, in order.
func Timeline(tb testing.TB, d Database, id uuid.UUID) string {
	tb.Helper()
	events, err := d.Store.Timeline(tb.Context(), id)
	if err != nil {
		tb.Fatal(err)
	}
	types := make([]string, len(events))
	for i, e := range events {
		types[i] = string(e.Type)
		if e.Seq != i+1 {
			tb.Errorf("event %d has the number %d", i+1, e.Seq)
		}
	}
	return strings.Join(types, " ")
}
