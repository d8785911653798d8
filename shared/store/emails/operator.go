package emails

import (
	"bytes"
	"context"
	"slices"
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
	return s.moveEmail(ctx, by, audit.Change{Action: cancelAction, Company: company, Subject: id.String()}, cancellation(by, id))
}

const cancelAction = "email.cancel"

func cancellation(by audit.Operator, id uuid.UUID) outbox.Transition {
	return outbox.Transition{
		ID: id, Guard: outbox.GuardOpen, Status: email.Cancelled, Events: []email.Event{operatorEvent(by, email.EventCancelled)},
	}
}

// CancelEmails is CancelEmail for different emails of any companies. Each group of up to pg.GroupRows has a commit of its
// own, with one audit entry for each company. It does not wait for emails that another transaction has locked. It calls
// done for each email when its group is committed: with Locked, or Status "" for an email whose row is not stored. An
// error leaves the groups after it unchanged, and a repeated call continues there.
func (s *Store) CancelEmails(ctx context.Context, by audit.Operator, ids []uuid.UUID, done func(id uuid.UUID, moved outbox.Advanced)) error {
	sorted := slices.SortedFunc(slices.Values(ids), func(a, b uuid.UUID) int { return bytes.Compare(a[:], b[:]) })
	for group := range slices.Chunk(sorted, pg.GroupRows) {
		var moved []outbox.Advanced
		_, err := audit.ApplyAll(ctx, s.db, by, func(tx *sqlx.Tx) (entries []audit.Change, err error) {
			moved, entries, err = cancelGroup(ctx, tx, by, group)
			return entries, err
		})
		if err != nil {
			return pg.Wrap(cancelAction, err)
		}
		for i, id := range group {
			done(id, moved[i])
		}
	}
	return nil
}

func cancelGroup(ctx context.Context, tx *sqlx.Tx, by audit.Operator, ids []uuid.UUID) ([]outbox.Advanced, []audit.Change, error) {
	ts := make([]outbox.Transition, len(ids))
	for i, id := range ids {
		ts[i] = cancellation(by, id)
	}
	moved, err := outbox.AdvanceFreeIn(ctx, tx, ts)
	if err != nil {
		return nil, nil, err
	}
	cancelled := map[uuid.UUID]int{}
	for _, m := range moved {
		if m.Applied {
			cancelled[m.CompanyID]++
		}
	}
	if len(cancelled) == 0 {
		return moved, nil, audit.ErrUnchanged
	}
	var entries []audit.Change
	for company, n := range cancelled {
		entries = append(entries, audit.Change{Action: cancelAction, Company: company, Details: map[string]any{"emails": n}})
	}
	return moved, entries, nil
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
