package maintenance

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"time"

	"github.com/google/uuid"
	"golang.org/x/sync/errgroup"

	"email-gateway/shared/email"
	"email-gateway/shared/store"
	"email-gateway/shared/store/breaker"
	"email-gateway/shared/store/dispatch"
	"email-gateway/shared/store/lane"
	"email-gateway/shared/store/outbox"
	"email-gateway/worker/internal/provider"
)

// Outcomes resolves emails whose last attempt has an unknown outcome.
type Outcomes struct {
	Advancer    Advancer
	MaxAttempts int
	Backoff     email.Backoff
	// Window is the feedback window until a worker has reported its own; 0 = the delivery policy applies immediately.
	Window    time.Duration
	Processes Processes
	Breaker   Breaker // nil = the breaker is always closed
	// PendingResults finds results that workers could not record; nil = there are none.
	PendingResults PendingResults
	// Wake makes all dispatchers read the lanes of the emails, since a dispatcher may have seen a lane empty.
	Wake func(ctx context.Context, lanes []lane.Named) error
}

// Breaker is the provider's circuit breaker.
type Breaker interface {
	Breaker(ctx context.Context) (breaker.Breaker, error)
}

// PendingResults finds results of attempts that workers could not write to Postgres, by their claim tokens.
type PendingResults interface {
	Find(ctx context.Context, tokens []uuid.UUID) (map[uuid.UUID]outbox.Transition, error)
	// MarkRecorded is called after a result has been written: its worker then does not count the email again.
	MarkRecorded(ctx context.Context, token uuid.UUID) error
}

const unknownReason = "the attempt's outcome is unknown"

// end advances the emails, as many concurrently as fit into one commit, and returns how many were changed, and for how many of
// these a worker knew the outcome. Emails that have changed after they were listed are skipped.
func (o Outcomes) end(ctx context.Context, unknown []dispatch.UnknownOutcome, guard outbox.Guard) (all, known int, err error) {
	results, err := o.find(ctx, unknown)
	if err != nil {
		return 0, 0, err
	}
	if guard == outbox.GuardAbandoned { // other emails have already waited for feedback
		if o.Window, err = feedbackWindow(ctx, o.Processes, o.Window); err != nil {
			return 0, 0, err
		}
	}
	var state breaker.Breaker
	if o.Breaker != nil {
		if state, err = o.Breaker.Breaker(ctx); err != nil {
			return 0, 0, err
		}
	}
	moved, again, recorded := make([]bool, len(unknown)), make([]bool, len(unknown)), make([]bool, len(unknown))
	var working errgroup.Group
	working.SetLimit(rescuers)
	for i, u := range unknown {
		working.Go(func() error {
			var refused error // a result that Postgres refuses must not keep the email from its end
			if t, ok := results[u.Token]; ok && t.ID == u.ID {
				done, err := o.Advancer.Advance(ctx, t)
				if done.Applied {
					moved[i], recorded[i], again[i] = true, true, t.Status == email.RetryScheduled
					err = o.PendingResults.MarkRecorded(ctx, u.Token)
				}
				if done.Applied || done.Locked || store.IsOutage(err) {
					return err
				}
				refused = err
			}
			t := o.next(u, guard, state.IsOpen)
			done, err := o.Advancer.Advance(ctx, t)
			moved[i], again[i] = done.Applied, done.Applied && t.Status == email.RetryScheduled
			return errors.Join(refused, err)
		})
	}
	err = working.Wait()
	lanes := make(map[int64]bool)
	for i, u := range unknown {
		if again[i] {
			lanes[u.LaneID] = true
		}
	}
	named := make([]lane.Named, 0, len(lanes))
	for id := range lanes {
		named = append(named, lane.Named{ID: id})
	}
	return count(moved), count(recorded), errors.Join(err, o.Wake(ctx, named))
}

// find returns the results of the attempts that their workers could not record.
func (o Outcomes) find(ctx context.Context, unknown []dispatch.UnknownOutcome) (map[uuid.UUID]outbox.Transition, error) {
	if o.PendingResults == nil {
		return nil, nil
	}
	tokens := make([]uuid.UUID, len(unknown))
	for i, u := range unknown {
		tokens[i] = u.Token
	}
	return o.PendingResults.Find(ctx, tokens)
}

// next returns the transition of an email. An abandoned claim first waits for feedback, unless the window is 0. After that the
// delivery policy decides whether the email is sent again. While the breaker is open (parked), an email does not fail because
// its attempts are used up: its last attempt does not count, since the outage may be the reason for the unknown outcome.
func (o Outcomes) next(u dispatch.UnknownOutcome, guard outbox.Guard, parked bool) outbox.Transition {
	t := outbox.Transition{
		ID: u.ID, Guard: guard, Token: u.Token, OutcomeUnknown: true,
		ErrorCode: email.CodeOutcomeUnknown, ErrorReason: unknownReason,
	}
	// The events have the same fields as those of the worker. An event of an older release has no category: it was written for
	// an abandoned claim.
	cause := map[string]any{
		"errorCode": t.ErrorCode, "errorMessage": t.ErrorReason,
		"errorCategory": cmp.Or(u.Category, string(provider.TransientError)),
		"originalCode":  cmp.Or(u.OriginalCode, email.CodeAttemptAbandoned),
	}
	counted := u.Attempts - u.Throttles
	last := counted >= o.MaxAttempts
	again := u.Delivery == email.AtLeastOnce && (!last || parked)
	if guard == outbox.GuardAbandoned {
		addEvent(&t, email.EventOutcomeUnknown, cause, map[string]any{"attemptId": u.Token, "willRetry": again})
		if o.Window > 0 {
			t.Status, t.Delay = email.OutcomeUnknown, o.Window
			return t
		}
	}
	if !again {
		t.Status, t.DeadLetter = email.Failed, true
		addEvent(&t, email.EventFailed, cause, map[string]any{"willRetry": false, "outcomeUnknown": true})
		return t
	}
	t.Status, t.PossibleDuplicate = email.RetryScheduled, true
	t.Delay = o.Backoff.Delay(u.Attempts)
	if parked || u.InOutage { // the outage may have ended since
		t.Delay = o.Backoff.OutageDelay(u.Attempts)
	}
	if last {
		t.AddThrottles, counted = 1, counted-1
	}
	addEvent(&t, email.EventRetryScheduled, cause, map[string]any{
		"willRetry": true, "nextAttemptNumber": counted + 1, "backoffDelay": t.Delay.Milliseconds(),
	})
	return t
}

func addEvent(t *outbox.Transition, kind email.EventType, cause, metadata map[string]any) {
	maps.Copy(metadata, cause)
	t.Events = append(t.Events, email.Event{Type: kind, At: time.Now().UTC(), Metadata: metadata})
}
