package store_test

import (
	"time"

	"github.com/google/uuid"

	"email-gateway/shared/email"
	"email-gateway/shared/store/outbox"
	"email-gateway/shared/store/storetest"
)

// The transitions as the programs make them.

func retryOf(id, token uuid.UUID, delay time.Duration) outbox.Transition {
	t := storetest.EndOf(id, token, email.RetryScheduled, storetest.Event(email.EventRetryScheduled, map[string]any{"backoffDelay": delay.Milliseconds()}))
	t.ErrorCode, t.ErrorReason, t.Delay = "SES_UNAVAILABLE", "503", delay
	return t
}

func releaseOf(id, token uuid.UUID) outbox.Transition {
	t := storetest.EndOf(id, token, email.Pending, storetest.Event(email.EventReleased, nil))
	t.AddAttempts = -1
	return t
}

// duplicateOf is retryOf for an email that the provider may have.
func duplicateOf(id, token uuid.UUID) outbox.Transition {
	t := retryOf(id, token, 0)
	t.PossibleDuplicate = true
	return t
}

// unknownOf records an unknown outcome: by the attempt's worker, or by the rescuer that found the attempt abandoned.
func unknownOf(id, token uuid.UUID, guard outbox.Guard) outbox.Transition {
	t := storetest.EndOf(id, token, email.OutcomeUnknown, storetest.Event(email.EventOutcomeUnknown, nil))
	t.Guard, t.OutcomeUnknown = guard, true
	return t
}

// refusalOf fails an email that did not pass a validation.
func refusalOf(id uuid.UUID) outbox.Transition {
	return outbox.Transition{
		ID: id, Guard: outbox.GuardClaim, Status: email.Failed, AddAttempts: 1, DeadLetter: true,
		ErrorCode: email.CodeInvalidTemplate, ErrorReason: "script",
		Events: []email.Event{storetest.Event(email.EventReceived, nil), storetest.Event(email.EventValidationFailed, nil), storetest.Event(email.EventFailed, nil)},
	}
}

func suppressOf(id uuid.UUID) outbox.Transition {
	return outbox.Transition{ID: id, Guard: outbox.GuardOpen, Status: email.Suppressed, Events: []email.Event{storetest.Event(email.EventSuppressed, nil)}}
}

func expireOf(id uuid.UUID) outbox.Transition {
	return outbox.Transition{
		ID: id, Guard: outbox.GuardOverdue, Status: email.Expired, ErrorCode: email.CodeExpired,
		Events: []email.Event{storetest.Event(email.EventExpired, nil)},
	}
}
