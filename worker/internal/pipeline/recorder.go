package pipeline

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"email-gateway/shared/crashpoint"
	"email-gateway/shared/email"
	"email-gateway/shared/service"
	"email-gateway/shared/store"
	"email-gateway/shared/store/outbox"
	"email-gateway/shared/telemetry"
)

// maxLockedResults bounds the results that wait for other transactions' locks in the background.
// Further ones wait in their task.
const maxLockedResults = 256

// recorder writes the results of attempts to Postgres.
type recorder struct {
	*Params
	postponer *postponer
	// slots and running are for results that cannot be recorded because another transaction has locked the row.
	// Their tasks have ended; otherwise one company's locked rows would occupy all workers.
	slots   chan struct{}
	running sync.WaitGroup
}

func newRecorder(p *Params, postponer *postponer) *recorder {
	return &recorder{Params: p, postponer: postponer, slots: make(chan struct{}, maxLockedResults)}
}

// record writes the result of an attempt:
//
//   - While the database does not answer, it repeats the write, and stores the result for the dispatchers: the provider has
//     answered.
//   - While another transaction has locked the email, it repeats the write in the background, if there is a slot. applied is then
//     false.
//   - If the database refuses an acceptance, because of a fault of the schema or of this program, it repeats the write
//     in the same way for refusedTime, since the email would be sent again without it. Any other refused write is an
//     error.
//   - If the lease ran out and another attempt has changed the email, it ignores a failure, and applied is false. It records an
//     acceptance, unless there is one already.
//
// t is then the transition that was applied.
func (r *recorder) record(log *slog.Logger, a *attempt, t *outbox.Transition) (applied bool, err error) {
	ctx := context.Background() // neither a shutdown nor the queue may interrupt this
	pending := startPending(r.PendingResults, log, *t)
	done, err := r.advance(ctx, t)
	if store.IsOutage(err) {
		r.Database.Failed()
		log.Error("cannot record the attempt's result, repeating until the database answers", "ended", t.Status, "error", err)
		waits := t.TaskWaits
		t.TaskWaits = false // the queue may have given the task to another worker, which acknowledges it
		done, err = r.retryUntilAnswered(ctx, t)
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
		return r.recorded(log, a, t, pending, done, err)
	}
	if r.recordLater(log, a, *t, pending) {
		return false, nil
	}
	done, err = r.retryUntilAnswered(ctx, t)
	return r.recorded(log, a, t, pending, done, err)
}

// advance applies a result. A release that comes too late, because another process has ended the attempt with an unknown
// outcome, makes the outcome known.
func (r *recorder) advance(ctx context.Context, t *outbox.Transition) (outbox.Advanced, error) {
	done, err := r.Advancer.Advance(ctx, *t)
	if err != nil || t.Status != email.Pending || !done.SameToken || done.Status != email.OutcomeUnknown {
		return done, err
	}
	*t = late(*t)
	return r.Advancer.Advance(ctx, *t)
}

// recorded handles the result of that write.
func (r *recorder) recorded(log *slog.Logger, a *attempt, t *outbox.Transition, pending *pendingResult, done outbox.Advanced, err error) (applied bool, _ error) {
	found := pending.end() && err == nil && pending.remove()
	record := telemetry.Record(slog.LevelInfo)
	switch {
	case err != nil:
		return false, fmt.Errorf("record attempt %s: %w", a.id, err)
	case done.Applied, !found && done.Rerun && done.SameToken && done.Status == t.Status: // by an earlier run, whose answer was lost
		crashpoint.At(crashpoint.SendRecorded)
		r.Metrics.transitions(t.Events)
		return true, nil
	case found:
		log.Log(context.Background(), record, "a dispatcher has recorded the attempt's result", "ended", done.Status) // and has counted it
		return false, nil
	case done.SameToken && done.Status == email.Sent: // counted where the feedback was recorded
		log.Log(context.Background(), record, "feedback recorded the email as sent before this result", "ended", t.Status)
		return false, nil
	}
	log.Log(context.Background(), telemetry.Record(slog.LevelWarn), "late result ignored: another attempt has changed the email", "status", done.Status, "ended", t.Status)
	return false, nil
}

// recordLater repeats the write in the background and reports whether there was a slot for it. If
// the worker dies meanwhile, the rescuer finds the email when its lease ends.
func (r *recorder) recordLater(log *slog.Logger, a *attempt, t outbox.Transition, pending *pendingResult) bool {
	select {
	case r.slots <- struct{}{}:
	default:
		return false
	}
	t.TaskWaits = false // the task ends now
	r.running.Go(func() {
		defer func() { <-r.slots }()
		done, err := r.retryUntilAnswered(context.Background(), &t)
		applied, err := r.recorded(log, a, &t, pending, done, err)
		switch {
		case err != nil:
			log.Error("the result of an attempt was not recorded", "error", email.MaskText(err.Error()))
		case applied && t.Status.Final():
			r.ended(log, a, t.Status)
		case applied:
			r.postponer.wakeLane(context.Background(), a, t.Delay)
			r.observe(log, a, t.Status, slog.LevelWarn)
		}
	})
	return true
}

// retryUntilAnswered repeats a write that failed in an outage or on another transaction's lock until the
// database answers, and for refusedTime a write of an acceptance that the database refuses. It holds
// no connection between two tries.
func (r *recorder) retryUntilAnswered(ctx context.Context, t *outbox.Transition) (outbox.Advanced, error) {
	delay, start, rerun := repeatDelay, time.Now(), false
	for {
		if err := service.Pause(ctx, delay); err != nil {
			return outbox.Advanced{}, err
		}
		done, err := r.advance(ctx, t)
		switch {
		case store.IsOutage(err):
			r.Database.Failed()
			delay, rerun = repeatDelay, true
		case done.Locked, err != nil && t.Status == email.Sent && time.Since(start) < refusedTime:
			delay = min(2*delay, lockedDelay)
		default:
			done.Rerun = done.Rerun || rerun
			return done, err
		}
	}
}

// ended counts and logs a final status.
func (r *recorder) ended(log *slog.Logger, a *attempt, status email.Status) {
	r.Metrics.final(status)
	level := slog.LevelInfo
	if status == email.Failed {
		level = slog.LevelError
	}
	r.observe(log, a, status, level)
}

func (r *recorder) observe(log *slog.Logger, a *attempt, status email.Status, level slog.Level) {
	took := time.Since(a.received)
	r.Metrics.took(status, took)
	if level >= slog.LevelInfo { // a restore needs results, not what waits while the breaker is open
		level = telemetry.Record(level)
	}
	log.Log(context.Background(), level, "email moved",
		telemetry.State, status, telemetry.DurationMS, took.Milliseconds(), "to", email.MaskAddress(a.job.To))
}

// wait waits for the results that are being recorded in the background.
func (r *recorder) wait(ctx context.Context) error {
	done := make(chan struct{})
	go func() {
		r.running.Wait()
		close(done)
	}()
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		return errors.New("results of locked emails were not recorded: the rescuer handles them when their leases end")
	}
}
