package store_test

import (
	"testing"
	"time"

	"github.com/google/uuid"

	"email-gateway/shared/email"
	"email-gateway/shared/store"
	"email-gateway/shared/store/storetest"
)

// A worker that was slow and comes back with the provider's refusal, when the rescuer has
// declared its attempt's outcome unknown, is believed; what it does not know changes
// nothing, and neither does another attempt's refusal.
func TestAdvance_RefusalOfAnUnknownOutcome(t *testing.T) {
	t.Parallel()
	d := storetest.New(t)
	company := d.Company(t)
	refusal := func(status email.Status, event email.EventType) store.Transition {
		return store.Transition{
			Status: status, ErrorCode: "SES_MESSAGE_REJECTED", DeadLetter: status == email.Failed, Delay: time.Minute,
			Events: []email.Event{{Type: event, At: time.Now()}},
		}
	}
	unknown := refusal(email.Failed, email.EventFailed)
	unknown.OutcomeUnknown = true
	for name, tt := range map[string]struct {
		end   store.Transition
		other bool // another attempt's
		want  email.Status
	}{
		"refused for good":        {refusal(email.Failed, email.EventFailed), false, email.Failed},
		"refused for now":         {refusal(email.RetryScheduled, email.EventRetryScheduled), false, email.RetryScheduled},
		"still unknown":           {unknown, false, email.OutcomeUnknown},
		"given back":              {refusal(email.Pending, email.EventReleased), false, email.OutcomeUnknown},
		"refused, of an old call": {refusal(email.Failed, email.EventFailed), true, email.OutcomeUnknown},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			id, token := d.Accept(t, company, nil), uuid.New()
			storetest.Apply(t, d, storetest.ClaimOf(company, id, token, "C"))
			run(t, d, `UPDATE email_outbox SET lease_until = now() - interval '1 s' WHERE id = $1`, id)
			storetest.Apply(t, d, store.Transition{
				ID: id, Guard: store.GuardAbandoned, Token: token, Status: email.OutcomeUnknown, Delay: time.Hour, OutcomeUnknown: true,
				Events: []email.Event{{Type: email.EventOutcomeUnknown, At: time.Now()}},
			})
			end := tt.end
			end.ID, end.Guard, end.Token = id, store.GuardAttempt, token
			if tt.other {
				end.Token = uuid.New()
			}
			got, err := d.Store.Advance(t.Context(), end)
			if err != nil || got.Applied != (tt.want != email.OutcomeUnknown) || got.Status != tt.want {
				t.Fatalf("%+v, %v", got, err)
			}
			shown, err := d.Store.FindEmail(t.Context(), company, id)
			if err != nil || shown.Status != tt.want || shown.PossibleDuplicate {
				t.Errorf("%+v, %v", shown, err)
			}
			moved, err := d.Store.Advance(t.Context(), store.Transition{
				ID: id, Guard: store.GuardUnresolved, Token: token, Status: email.RetryScheduled, Events: end.Events,
			})
			if err != nil || moved.Applied {
				t.Errorf("decided about before its time, or again: %+v, %v", moved, err)
			}
		})
	}
}
