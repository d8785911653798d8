package pipeline

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"time"

	"email-gateway/shared/crashpoint"
	"email-gateway/shared/email"
	"email-gateway/shared/store"
	"email-gateway/shared/store/outbox"
	"email-gateway/shared/telemetry"
	"email-gateway/worker/internal/provider"
	"email-gateway/worker/internal/queue"
)

// sent records that the provider accepted the email.
func (p *Pipeline) sent(log *slog.Logger, a *attempt, receipt provider.Receipt) error {
	log = log.With("sesMessageId", receipt.MessageID)
	t := a.end(email.Sent)
	t.SESMessageID = receipt.MessageID
	t.Events = []email.Event{event(email.EventSent, time.Now(), map[string]any{
		"sesMessageId": receipt.MessageID, "durationMs": t.Duration.Milliseconds(), "attempt": a.number(),
	})}
	p.Pacer.Accepted(a.called)
	applied, err := p.record(log, a, &t)
	p.Breaker.Answered(a.call(p.MaxAttempts))
	if p.Sent != nil {
		p.Sent(time.Since(a.received))
	}
	if !applied {
		return err
	}
	p.ended(log, a, email.Sent)
	return nil
}

// recordFailure acts on the outcome of a failed call, unless the circuit breaker overrides it.
func (p *Pipeline) recordFailure(log *slog.Logger, a *attempt, f *provider.Failure) error {
	log = log.With("code", f.Code, "category", f.Category, "reason", email.MaskText(f.Reason))
	if f.Outcome == provider.Throttled && !f.AccountWide { // an exhausted quota says nothing about the rate
		p.Pacer.Throttled(a.called)
	}
	if p.Breaker.Failed(a.call(p.MaxAttempts), f) {
		if f.Outcome != provider.Unknown {
			return p.release(log, a, slog.LevelDebug, f.Code, f) // the circuit breaker has logged it once for all emails
		}
		// The provider may have accepted it, and the email stays flagged as unknown. The try does
		// not count, like a throttled one, unless the delivery policy allows no other.
		if a.row.Delivery == email.AtLeastOnce {
			a.excused = true
			a.throttles++
		}
	}
	switch f.Outcome {
	case provider.Failed, provider.Unreadable:
		return p.fail(log, a, f)
	case provider.Throttled:
		a.throttles++
		return p.retry(log, a, f)
	case provider.Retry, provider.Park: // Park gets here only if it concerns this email or its sender
		if a.number() >= p.MaxAttempts {
			return p.fail(log, a, f)
		}
		return p.retry(log, a, f)
	case provider.Unknown:
		again := a.row.Delivery == email.AtLeastOnce && a.number() < p.MaxAttempts
		switch {
		case p.FeedbackWindow > 0:
			return p.awaitFeedback(log, a, f, again)
		case again:
			return p.retry(log, a, f)
		}
		return p.fail(log, a, f)
	case provider.Unspent:
		return p.release(log, a, slog.LevelWarn, f.Code, f)
	}
	return fmt.Errorf("record failure: unknown outcome %q", f.Outcome)
}

// fail ends an email that will not be retried. It is flagged if the provider may have accepted it.
func (p *Pipeline) fail(log *slog.Logger, a *attempt, f *provider.Failure) error {
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
	if applied, err := p.record(log, a, &t); !applied {
		return err
	}
	p.ended(log, a, email.Failed)
	return &queue.Dead{Reason: t.ErrorCode + ": " + email.MaskText(f.Reason)}
}

// retry schedules the next try after the backoff. The delay after try n is the table's n-th,
// throttled tries included. A short delay is spent on the queue if it has room, any other in the
// outbox, from which the dispatcher enqueues the email.
func (p *Pipeline) retry(log *slog.Logger, a *attempt, f *provider.Failure) error {
	delay := p.Backoff.Delay(a.tries, jitter())
	if a.excused {
		delay = p.Backoff.OutageDelay(a.tries, jitter())
	}
	t := a.end(email.RetryScheduled)
	t.Delay = delay
	t.TaskWaits = !a.excused && delay <= queueWait && p.RetryRoom.Free(context.Background(), a.queue)
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
	metadata["nextAttemptNumber"] = a.number() + 1
	metadata["backoffDelay"] = delay.Milliseconds()
	t.Events = append(t.Events, event(email.EventRetryScheduled, now, metadata))
	if applied, err := p.record(log, a, &t); !applied {
		return err
	}
	p.observe(log, a, email.RetryScheduled, slog.LevelWarn)
	if !t.TaskWaits {
		p.wakeLane(context.Background(), a, delay)
		return nil
	}
	return &queue.RetryLater{Delay: delay, Reason: f.Code + ": " + email.MaskText(f.Reason)}
}

// awaitFeedback leaves the email in OUTCOME_UNKNOWN until the provider's feedback says whether it
// was accepted, or until the window ends and the delivery policy decides.
func (p *Pipeline) awaitFeedback(log *slog.Logger, a *attempt, f *provider.Failure, again bool) error {
	t := a.end(email.OutcomeUnknown)
	t.Delay, t.OutcomeUnknown = p.FeedbackWindow, true
	unknown := unknownEvent(time.Now(), f, again)
	if a.excused {
		t.AddThrottles = 1
		unknown.Metadata["inOutage"] = true // read by the outcome resolver when the window ends
	}
	t.ErrorCode, t.ErrorReason = f.Code, f.Reason
	t.Events = []email.Event{unknown}
	if applied, err := p.record(log, a, &t); !applied {
		return err
	}
	p.observe(log, a, email.OutcomeUnknown, slog.LevelWarn)
	return nil
}

// release returns the email to the outbox without counting the try. f is nil if there was no call.
func (p *Pipeline) release(log *slog.Logger, a *attempt, level slog.Level, why string, f *provider.Failure) error {
	t := a.release(why, f)
	if applied, err := p.record(log, a, &t); !applied {
		return err
	}
	p.wakeLane(context.Background(), a, t.Delay)
	p.observe(log.With("why", why), a, t.Status, level)
	return nil
}

// release returns the transition that gives the email back to the outbox.
func (a *attempt) release(why string, f *provider.Failure) outbox.Transition {
	t := a.end(email.Pending)
	t.AddAttempts, t.Delay = -1, releaseDelay
	metadata := map[string]any{}
	if f != nil {
		metadata = failureMetadata(f, true)
		t.ErrorCode, t.ErrorReason = f.Code, f.Reason
	}
	metadata["reason"], metadata["nextAttemptNumber"] = why, a.number() // this try does not count
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

// record writes the result of an attempt. The provider has answered, so the write is repeated until
// the database answers. While another transaction has locked the email it is repeated in the
// background, if there is a slot; applied is then false. An error means that the database rejected
// the statement, because of a fault of the schema or of this program. An acceptance is then repeated
// in the same way for refusedTime, since the email would be sent again without it. applied is also
// false if the lease ran out and another attempt has changed the email: a late failure is ignored. A
// late acceptance is recorded, unless there is one already. t is then the transition that was applied. While the database does
// not answer, the result is kept for the dispatchers.
func (p *Pipeline) record(log *slog.Logger, a *attempt, t *outbox.Transition) (applied bool, err error) {
	ctx := context.Background() // neither a shutdown nor the queue may interrupt this
	k := p.keep(log, *t)
	done, err := p.advance(ctx, t)
	if store.IsOutage(err) {
		p.Database.Failed()
		log.Error("cannot record the attempt's result, repeating until the database answers", "ended", t.Status, "error", err)
		waits := t.TaskWaits
		t.TaskWaits = false // the queue may have given the task to another worker, which acknowledges it
		done, err = p.retryUntilAnswered(ctx, t)
		done.Rerun = true
		if !done.Applied {
			t.TaskWaits = waits // an earlier try was applied, whose answer was lost
		}
	}
	switch refused := err != nil && t.Status == email.Sent; {
	case refused:
		log.Error("the database rejects the result of an accepted email, retrying the write", "error", email.MaskText(err.Error()))
	case done.Locked:
		log.Warn("email locked by another transaction, repeating until the attempt's result is recorded", "ended", t.Status)
	default:
		return p.recorded(log, a, t, k, done, err)
	}
	if p.recordLater(log, a, *t, k) {
		return false, nil
	}
	done, err = p.retryUntilAnswered(ctx, t)
	return p.recorded(log, a, t, k, done, err)
}

// advance applies a result. A release that comes too late, because another process has ended the attempt with an unknown
// outcome, makes the outcome known.
func (p *Pipeline) advance(ctx context.Context, t *outbox.Transition) (outbox.Advanced, error) {
	done, err := p.Advancer.Advance(ctx, *t)
	if err != nil || t.Status != email.Pending || !done.SameToken || done.Status != email.OutcomeUnknown {
		return done, err
	}
	*t = late(*t)
	return p.Advancer.Advance(ctx, *t)
}

// recorded handles the result of that write.
func (p *Pipeline) recorded(log *slog.Logger, a *attempt, t *outbox.Transition, k *kept, done outbox.Advanced, err error) (applied bool, _ error) {
	found := k.end() && err == nil && k.remove()
	switch {
	case err != nil:
		return false, fmt.Errorf("record attempt %s: %w", a.id, err)
	case done.Applied, !found && done.Rerun && done.SameToken && done.Status == t.Status: // by an earlier run, whose answer was lost
		crashpoint.At(crashpoint.SendRecorded)
		p.Metrics.transitions(t.Events)
		return true, nil
	case found:
		log.Info("a dispatcher has recorded the attempt's result", "ended", done.Status) // and has counted it
		return false, nil
	case done.SameToken && done.Status == email.Sent: // counted where the feedback was recorded
		log.Info("feedback recorded the email as sent before this result", "ended", t.Status)
		return false, nil
	}
	log.Warn("late result ignored: another attempt has changed the email", "status", done.Status, "ended", t.Status)
	return false, nil
}

// ended counts and logs a final status.
func (p *Pipeline) ended(log *slog.Logger, a *attempt, status email.Status) {
	p.Metrics.final(status)
	level := slog.LevelInfo
	if status == email.Failed {
		level = slog.LevelError
	}
	p.observe(log, a, status, level)
}

func (p *Pipeline) observe(log *slog.Logger, a *attempt, status email.Status, level slog.Level) {
	took := time.Since(a.received)
	p.Metrics.took(status, took)
	log.Log(context.Background(), level, "email moved",
		telemetry.State, status, telemetry.DurationMS, took.Milliseconds(), "to", email.MaskAddress(a.job.To))
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
