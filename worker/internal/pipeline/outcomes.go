package pipeline

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"email-gateway/shared/email"
	"email-gateway/worker/internal/provider"
	"email-gateway/worker/internal/queue"
)

// outcomes decides what follows from the outcome of a provider call.
type outcomes struct {
	*Params
	recorder  *recorder
	postponer *postponer
}

// sent records that the provider accepted the email.
func (o *outcomes) sent(log *slog.Logger, a *attempt, receipt provider.Receipt) error {
	log = log.With("sesMessageId", receipt.MessageID)
	t := a.end(email.Sent)
	t.SESMessageID = receipt.MessageID
	t.Events = []email.Event{event(email.EventSent, time.Now(), map[string]any{
		"sesMessageId": receipt.MessageID, "durationMs": t.Duration.Milliseconds(), "attempt": a.counted(),
	})}
	o.Pacer.Accepted(a.called)
	applied, err := o.recorder.record(log, a, &t)
	o.Breaker.Answered(a.call(o.MaxAttempts))
	if o.Sent != nil {
		o.Sent(time.Since(a.received))
	}
	if !applied {
		return err
	}
	o.recorder.ended(log, a, email.Sent)
	return nil
}

// recordFailure acts on the outcome of a failed call, unless the circuit breaker overrides it.
func (o *outcomes) recordFailure(log *slog.Logger, a *attempt, f *provider.Failure) error {
	log = log.With("code", f.Code, "category", f.Category, "reason", email.MaskText(f.Reason))
	if f.Outcome == provider.Throttled && !f.AccountWide { // an exhausted quota says nothing about the rate
		o.Pacer.Throttled(a.called)
	}
	if o.Breaker.Failed(a.call(o.MaxAttempts), f) {
		if f.Outcome != provider.Unknown {
			return o.release(log, a, slog.LevelDebug, f.Code, f) // the circuit breaker has logged it once for all emails
		}
		// The provider may have accepted it, and the email stays flagged as unknown. The attempt does
		// not count, like a throttled one, unless the delivery policy allows no other.
		if a.row.Delivery == email.AtLeastOnce {
			a.excused = true
			a.throttles++
		}
	}
	if f.Incomplete && f.Outcome == provider.Retry && !a.excused {
		// It was not sent, so another attempt does no harm: a slow connection to the provider uses up time, not attempts. The
		// deadline ends it.
		a.excused = true
		a.throttles++
	}
	switch f.Outcome {
	case provider.Failed, provider.Unreadable:
		return o.fail(log, a, f)
	case provider.Throttled:
		a.throttles++
		return o.retry(log, a, f)
	case provider.Retry, provider.Park: // Park gets here only if it concerns this email or its sender
		if a.counted() >= o.MaxAttempts {
			return o.fail(log, a, f)
		}
		return o.retry(log, a, f)
	case provider.Unknown:
		again := a.row.Delivery == email.AtLeastOnce && a.counted() < o.MaxAttempts
		switch {
		case o.FeedbackWindow > 0:
			return o.awaitFeedback(log, a, f, again)
		case again:
			return o.retry(log, a, f)
		}
		return o.fail(log, a, f)
	case provider.Unspent:
		return o.release(log, a, slog.LevelWarn, f.Code, f)
	}
	return fmt.Errorf("record failure: unknown outcome %q", f.Outcome)
}

// fail ends an email that will not be retried. It is flagged if the provider may have accepted it.
func (o *outcomes) fail(log *slog.Logger, a *attempt, f *provider.Failure) error {
	t := a.end(email.Failed)
	t.DeadLetter = true
	t.ErrorCode, t.ErrorReason = f.Code, f.Reason
	t.OutcomeUnknown = f.Outcome == provider.Unknown || f.Outcome == provider.Unreadable
	now := time.Now()
	if f.Outcome == provider.Unknown {
		t.Events = append(t.Events, unknownEvent(now, f, false))
		if a.row.Delivery == email.AtMostOnce {
			t.ErrorCode = email.CodeOutcomeUnknown
		}
	}
	metadata := failureMetadata(f, false)
	metadata["errorCode"] = t.ErrorCode
	metadata["outcomeUnknown"] = t.OutcomeUnknown
	t.Events = append(t.Events, event(email.EventFailed, now, metadata))
	if applied, err := o.recorder.record(log, a, &t); !applied {
		return err
	}
	o.recorder.ended(log, a, email.Failed)
	return &queue.Dead{Reason: t.ErrorCode + ": " + email.MaskText(f.Reason)}
}

// retry schedules the next attempt after the backoff. The delay after attempt n, throttled ones included, is the table's
// n-th. A short delay is spent on the queue if it has room, any other in the
// outbox, from which the dispatcher enqueues the email.
func (o *outcomes) retry(log *slog.Logger, a *attempt, f *provider.Failure) error {
	delay := o.Backoff.Delay(a.attempts)
	if a.excused {
		delay = o.Backoff.OutageDelay(a.attempts)
	}
	t := a.end(email.RetryScheduled)
	t.Delay = delay
	t.TaskWaits = !a.excused && delay <= queueWait && o.RetryRoom.Free(context.Background(), a.queue)
	t.ErrorCode, t.ErrorReason = f.Code, f.Reason
	now := time.Now()
	if f.Outcome == provider.Throttled || a.excused {
		t.AddThrottles = 1
	}
	if f.Outcome == provider.Unknown {
		t.OutcomeUnknown, t.PossibleDuplicate = true, true
		t.Events = append(t.Events, unknownEvent(now, f, true))
	}
	metadata := failureMetadata(f, true)
	metadata["nextAttemptNumber"] = a.counted() + 1
	metadata["backoffDelay"] = delay.Milliseconds()
	t.Events = append(t.Events, event(email.EventRetryScheduled, now, metadata))
	if applied, err := o.recorder.record(log, a, &t); !applied {
		return err
	}
	o.recorder.observe(log, a, email.RetryScheduled, slog.LevelWarn)
	if !t.TaskWaits {
		o.postponer.wakeLane(context.Background(), a, delay)
		return nil
	}
	return &queue.RetryLater{Delay: delay, Reason: f.Code + ": " + email.MaskText(f.Reason)}
}

// awaitFeedback leaves the email in OUTCOME_UNKNOWN until the provider's feedback says whether it
// was accepted, or until the window ends and the delivery policy decides.
func (o *outcomes) awaitFeedback(log *slog.Logger, a *attempt, f *provider.Failure, again bool) error {
	t := a.end(email.OutcomeUnknown)
	t.Delay, t.OutcomeUnknown = o.FeedbackWindow, true
	unknown := unknownEvent(time.Now(), f, again)
	if a.excused {
		t.AddThrottles = 1
		unknown.Metadata["inOutage"] = true // read by the outcome resolver when the window ends
	}
	t.ErrorCode, t.ErrorReason = f.Code, f.Reason
	t.Events = []email.Event{unknown}
	if applied, err := o.recorder.record(log, a, &t); !applied {
		return err
	}
	o.recorder.observe(log, a, email.OutcomeUnknown, slog.LevelWarn)
	return nil
}

// release returns the email to the outbox without counting the attempt. f is nil if there was no call.
func (o *outcomes) release(log *slog.Logger, a *attempt, level slog.Level, why string, f *provider.Failure) error {
	t := a.release(why, f)
	if applied, err := o.recorder.record(log, a, &t); !applied {
		return err
	}
	o.postponer.wakeLane(context.Background(), a, t.Delay)
	if f == nil { // otherwise the logger has the failure's code and reason
		log = log.With("reason", why)
	}
	o.recorder.observe(log, a, t.Status, level)
	return nil
}
