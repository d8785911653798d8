package store_test

import (
	"time"

	"github.com/google/uuid"

	"email-gateway/shared/email"
	"email-gateway/shared/store"
)

// The transitions as the programs make them.

func claimOf(company, id, token uuid.UUID, externalID string) store.Transition {
	return store.Transition{
		ID: id, Guard: store.GuardClaim, Token: token, Status: email.Processing, AddAttempts: 1,
		Events: []email.Event{
			event(email.EventReceived, map[string]any{"attempt": 1, "jobId": id}),
			event(email.EventValidated, map[string]any{"validations": []string{"INTEGRITY", "OUTBOX", "RECIPIENT", "TEMPLATE"}}),
			event(email.EventSentAttempt, map[string]any{"attempt": 1, "attemptId": token}),
		},
		Recipient: &store.Recipient{
			ID: store.RecipientID(company, externalID, "", ""), ExternalID: externalID, Nome: "Ana", Email: "ana@example.com",
		},
	}
}

func sentOf(id, token uuid.UUID) store.Transition {
	t := endOf(id, token, email.Sent, event(email.EventSent, map[string]any{"sesMessageId": "ses-" + id.String(), "attempt": 1}))
	t.SESMessageID = "ses-" + id.String()
	return t
}

func failedOf(id, token uuid.UUID) store.Transition {
	t := endOf(id, token, email.Failed, event(email.EventFailed, map[string]any{"errorCode": "SES_REJECTED"}))
	t.ErrorCode, t.ErrorReason, t.DeadLetter = "SES_REJECTED", "no such mailbox", true
	return t
}

func retryOf(id, token uuid.UUID, delay time.Duration) store.Transition {
	t := endOf(id, token, email.RetryScheduled, event(email.EventRetryScheduled, map[string]any{"backoffDelay": delay.Milliseconds()}))
	t.ErrorCode, t.ErrorReason, t.Delay = "SES_UNAVAILABLE", "503", delay
	return t
}

func releaseOf(id, token uuid.UUID) store.Transition {
	t := endOf(id, token, email.Pending, event(email.EventReleased, nil))
	t.AddAttempts = -1
	return t
}

// duplicateOf is retryOf for an email that the provider may have.
func duplicateOf(id, token uuid.UUID) store.Transition {
	t := retryOf(id, token, 0)
	t.PossibleDuplicate = true
	return t
}

// unknownOf leaves an attempt open: by itself, or by somebody who found it abandoned.
func unknownOf(id, token uuid.UUID, guard store.Guard) store.Transition {
	t := endOf(id, token, email.OutcomeUnknown, event(email.EventOutcomeUnknown, nil))
	t.Guard, t.OutcomeUnknown = guard, true
	return t
}

func endOf(id, token uuid.UUID, to email.Status, events ...email.Event) store.Transition {
	return store.Transition{
		ID: id, Guard: store.GuardAttempt, Token: token, Status: to, Events: events, Duration: 80 * time.Millisecond,
	}
}

// refusalOf fails an email that did not pass a validation.
func refusalOf(id uuid.UUID) store.Transition {
	return store.Transition{
		ID: id, Guard: store.GuardClaim, Status: email.Failed, AddAttempts: 1, DeadLetter: true,
		ErrorCode: email.CodeInvalidTemplate, ErrorReason: "script",
		Events: []email.Event{event(email.EventReceived, nil), event(email.EventValidationFailed, nil), event(email.EventFailed, nil)},
	}
}

func cancelOf(id uuid.UUID) store.Transition {
	return store.Transition{ID: id, Guard: store.GuardOpen, Status: email.Cancelled, Events: []email.Event{event(email.EventCancelled, nil)}}
}

func suppressOf(id uuid.UUID) store.Transition {
	return store.Transition{ID: id, Guard: store.GuardOpen, Status: email.Suppressed, Events: []email.Event{event(email.EventSuppressed, nil)}}
}

func expireOf(id uuid.UUID) store.Transition {
	return store.Transition{
		ID: id, Guard: store.GuardOverdue, Status: email.Expired, ErrorCode: email.CodeExpired,
		Events: []email.Event{event(email.EventExpired, nil)},
	}
}

func replayOf(id uuid.UUID) store.Transition {
	return store.Transition{
		ID: id, Guard: store.GuardReplay, Status: email.Pending, Renew: 24 * time.Hour, Events: []email.Event{event(email.EventReplayed, nil)},
	}
}

func event(kind email.EventType, metadata map[string]any) email.Event {
	return email.Event{Type: kind, At: time.Now().UTC(), Metadata: metadata}
}
