package emails

import (
	"context"
	"time"

	"github.com/google/uuid"
	"github.com/jmoiron/sqlx"

	"email-gateway/shared/email"
	"email-gateway/shared/store/audit"
	"email-gateway/shared/store/internal/pg"
	"email-gateway/shared/store/outbox"
)

// The methods in this file are for operators. Each change of an email writes a row to operator_audit in the same
// transaction.

// CancelEmail cancels an email that no worker has claimed. If it is too late, Applied is false, Status is the reason,
// and no audit entry is written.
func (s *Store) CancelEmail(ctx context.Context, by audit.Operator, company, id uuid.UUID) (outbox.Advanced, error) {
	return s.moveEmail(ctx, by, audit.Change{Action: "email.cancel", Company: company, Subject: id.String()}, outbox.Transition{
		ID: id, Guard: outbox.GuardOpen, Status: email.Cancelled, Events: []email.Event{operatorEvent(by, email.EventCancelled)},
	})
}

// ReplayEmail gives an email that FAILED, EXPIRED or was CANCELLED a new budget of attempts and a deadline in ttl from
// now. If Applied is false, the email cannot be sent again: Status is the reason, or "" if its row is no longer stored;
// or Erased or Replaced is true.
func (s *Store) ReplayEmail(ctx context.Context, by audit.Operator, company, id uuid.UUID, ttl time.Duration) (outbox.Advanced, error) {
	return s.moveEmail(ctx, by, audit.Change{Action: "email.retry", Company: company, Subject: id.String()}, outbox.Transition{
		ID: id, Guard: outbox.GuardReplay, Status: email.Pending, Renew: ttl, Events: []email.Event{operatorEvent(by, email.EventReplayed)},
	})
}

func (s *Store) moveEmail(ctx context.Context, by audit.Operator, a audit.Change, t outbox.Transition) (moved outbox.Advanced, err error) {
	_, err = audit.Apply(ctx, s.db, by, a, func(tx *sqlx.Tx, _ *audit.Change) error {
		if moved, err = outbox.AdvanceIn(ctx, tx, t); err != nil {
			return err
		}
		if !moved.Applied {
			return audit.ErrUnchanged
		}
		return nil
	})
	return moved, pg.Wrap(a.Action, err)
}

// operatorEvent returns a timeline event that names the operator.
func operatorEvent(o audit.Operator, kind email.EventType) email.Event {
	a := o.Actor()
	return email.Event{Type: kind, At: time.Now().UTC(), Metadata: map[string]any{"by": a.By, "operator": a.Name}}
}
