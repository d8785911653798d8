package maintenance

import (
	"context"
	"math/rand/v2"
	"time"

	"golang.org/x/sync/errgroup"

	"email-gateway/shared/email"
	"email-gateway/shared/store"
)

// Outcomes decides about emails of whose last attempt nobody knows how it ended.
type Outcomes struct {
	Advancer    Advancer
	MaxAttempts int
	Backoff     email.Backoff
	// Window is how long the provider's feedback is waited for before the email's
	// delivery decides, while no worker has told its own; 0 = it decides at once.
	Window    time.Duration
	Processes Processes
}

const unknownReason = "nobody told how the attempt ended"

// end moves the emails on, as many at a time as make one commit, and says how many
// there were. Those that have moved on by themselves are left alone.
func (o Outcomes) end(ctx context.Context, unknown []store.UnknownOutcome, guard store.Guard) (int, error) {
	var err error
	if guard == store.GuardAbandoned { // the others have waited
		if o.Window, err = feedbackWindow(ctx, o.Processes, o.Window); err != nil {
			return 0, err
		}
	}
	moved := make([]bool, len(unknown))
	var working errgroup.Group
	working.SetLimit(rescuers)
	for i, u := range unknown {
		working.Go(func() error {
			done, err := o.Advancer.Advance(ctx, o.next(u, guard))
			moved[i] = done.Applied
			return err
		})
	}
	err = working.Wait()
	return count(moved), err
}

// next is where the email goes: from a claim that was abandoned to the wait for
// feedback, if there is any, and then to what its delivery asks for.
func (o Outcomes) next(u store.UnknownOutcome, guard store.Guard) store.Transition {
	t := store.Transition{
		ID: u.ID, Guard: guard, Token: u.Token, OutcomeUnknown: true,
		ErrorCode: email.CodeOutcomeUnknown, ErrorReason: unknownReason,
	}
	try := u.Attempts - u.Throttles
	again := u.Delivery == email.AtLeastOnce && try < o.MaxAttempts
	if guard == store.GuardAbandoned {
		o.tell(&t, email.EventOutcomeUnknown, map[string]any{"attemptId": u.Token, "willRetry": again})
		if o.Window > 0 {
			t.Status, t.Delay = email.OutcomeUnknown, o.Window
			return t
		}
	}
	if !again {
		t.Status, t.DeadLetter = email.Failed, true
		o.tell(&t, email.EventFailed, map[string]any{"willRetry": false, "outcomeUnknown": true})
		return t
	}
	t.Status, t.PossibleDuplicate = email.RetryScheduled, true
	t.Delay = o.Backoff.Delay(u.Attempts, rand.Float64())
	o.tell(&t, email.EventRetryScheduled, map[string]any{
		"willRetry": true, "nextAttemptNumber": try + 1, "backoffDelay": t.Delay.Milliseconds(),
	})
	return t
}

func (o Outcomes) tell(t *store.Transition, kind email.EventType, metadata map[string]any) {
	metadata["errorCode"], metadata["errorMessage"] = t.ErrorCode, t.ErrorReason
	t.Events = append(t.Events, email.Event{Type: kind, At: time.Now().UTC(), Metadata: metadata})
}
