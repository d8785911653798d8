package pipeline

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"email-gateway/shared/email"
	"email-gateway/shared/store/outbox"
	"email-gateway/worker/internal/provider"
)

// release returns the transition that gives the email back to the outbox.
func (a *attempt) release(why string, f *provider.Failure) outbox.Transition {
	t := a.end(email.Pending)
	t.AddAttempts, t.Delay = -1, releaseDelay
	metadata := map[string]any{}
	if f != nil {
		metadata = failureMetadata(f, true)
		t.ErrorCode, t.ErrorReason = f.Code, f.Reason
	}
	metadata["reason"], metadata["nextAttemptNumber"] = why, a.counted() // this attempt does not count
	t.Events = []email.Event{event(email.EventReleased, time.Now(), metadata)}
	return t
}

// late returns the form of a result that GuardAttempt also applies when another process has ended the attempt with an
// unknown outcome: a release becomes a retry that is due immediately. No task waits for a late retry, because the queue
// has given the task to another worker meanwhile.
func late(t outbox.Transition) outbox.Transition {
	t.TaskWaits = false
	if t.Status != email.Pending {
		return t
	}
	t.Status, t.Delay = email.RetryScheduled, 0
	t.Events = slices.Clone(t.Events)
	for i, e := range t.Events {
		if t.ErrorCode == "" { // there was no call
			t.ErrorCode, t.ErrorReason = email.CodeAttemptAbandoned, fmt.Sprint(e.Metadata["reason"])
		}
		metadata := map[string]any{"errorCode": t.ErrorCode, "errorCategory": provider.TransientError, "willRetry": true, "backoffDelay": 0}
		maps.Copy(metadata, e.Metadata)
		t.Events[i] = email.Event{Type: email.EventRetryScheduled, At: e.At, Metadata: metadata}
	}
	return t
}

func unknownEvent(at time.Time, f *provider.Failure, willRetry bool) email.Event {
	return event(email.EventOutcomeUnknown, at, failureMetadata(f, willRetry))
}

// failureMetadata returns an event's metadata for a failed call.
func failureMetadata(f *provider.Failure, willRetry bool) map[string]any {
	return map[string]any{
		"errorCode": f.Code, "errorCategory": f.Category, "errorMessage": f.Reason, "originalCode": f.OriginalCode,
		"willRetry": willRetry,
	}
}
