package store

import (
	"context"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jmoiron/sqlx"

	"email-gateway/shared/email"
	"email-gateway/shared/store/internal/pg"
)

// What an operator does with single emails and dead letters. Programs do the same by other
// methods; these write it down in operator_audit.

// CancelEmail withdraws an email that no worker has taken up. With Applied false it is too
// late, and Status says why; nothing is written down then.
func (s *Store) CancelEmail(ctx context.Context, by Operator, company, id uuid.UUID) (Advanced, error) {
	return s.moveEmail(ctx, by, act{action: "email.cancel", company: company, subject: id.String()}, Transition{
		ID: id, Guard: GuardOpen, Status: email.Cancelled, Events: []email.Event{by.event(email.EventCancelled)},
	})
}

// ReplayEmail gives an email that FAILED, EXPIRED or was CANCELLED a new budget of tries
// and a deadline that is ttl away. With Applied false it can not be sent again, and Status
// says why, or is "" when its row is not kept any more, or Erased or Replaced is true.
func (s *Store) ReplayEmail(ctx context.Context, by Operator, company, id uuid.UUID, ttl time.Duration) (Advanced, error) {
	return s.moveEmail(ctx, by, act{action: "email.retry", company: company, subject: id.String()}, Transition{
		ID: id, Guard: GuardReplay, Status: email.Pending, Renew: ttl, Events: []email.Event{by.event(email.EventReplayed)},
	})
}

func (s *Store) moveEmail(ctx context.Context, by Operator, a act, t Transition) (moved Advanced, err error) {
	_, err = s.audited(ctx, by, a, func(tx *sqlx.Tx, _ *act) error {
		if moved, err = advanceIn(ctx, tx, t); err != nil {
			return err
		}
		if !moved.Applied {
			return errStands
		}
		return nil
	})
	return moved, pg.Wrap(a.action, err)
}

// event tells an email's timeline who did it.
func (o Operator) event(kind email.EventType) email.Event {
	a := o.actor()
	return email.Event{Type: kind, At: time.Now().UTC(), Metadata: map[string]any{"by": a.By, "operator": a.Name}}
}

// RetryDeadLetterAs is RetryDeadLetter by an operator.
func (s *Store) RetryDeadLetterAs(ctx context.Context, by Operator, l DeadLetter, ttl time.Duration) error {
	_, err := s.audited(ctx, by, l.act("dlq.retry"), func(tx *sqlx.Tx, _ *act) error {
		// Not RetryDeadLetter, which looks again on another connection: this one is in use.
		return s.retryDeadLetter(ctx, l, LetterRetry{Actor: by.actor(), TTL: ttl, tx: tx})
	})
	return err
}

// DiscardDeadLetterAs is DiscardDeadLetter by an operator, whose reason is the note. false:
// it is not open any more.
func (s *Store) DiscardDeadLetterAs(ctx context.Context, by Operator, l DeadLetter) (bool, error) {
	did, err := s.auditedOne(ctx, by, l.act("dlq.discard"), discardLettersSQL, pg.UUIDArray([]uuid.UUID{l.ID}), by.actor().String(), pg.WithoutNUL(by.Reason), nil)
	return did, pg.Wrap("discard dead letter", err)
}

func (l DeadLetter) act(action string) act {
	a := act{action: action, subject: l.ID.String(), details: map[string]any{"reason": l.Reason, "target": l.Target}}
	if l.CompanyID != nil {
		a.company = *l.CompanyID
	}
	if l.OutboxID != nil {
		a.details["outboxId"] = *l.OutboxID
	}
	return a
}

// CreateReplayAs is CreateReplay by an operator, whose reason is the note.
func (s *Store) CreateReplayAs(ctx context.Context, by Operator, n NewReplay) (Replay, error) {
	n.Actor, n.Note = by.actor(), by.Reason
	row, err := s.replayRow(ctx, n)
	if err != nil {
		return Replay{}, err
	}
	f := n.Filter
	if f.Recipient != "" {
		f.Recipient = email.MaskAddress(f.Recipient)
	}
	a := act{
		action: fmt.Sprintf("dlq.%s-many", n.Action), subject: n.ID.String(),
		details: map[string]any{"filter": f, "matched": row[len(row)-1], "rate": n.Rate},
	}
	if n.CompanyID != nil {
		a.company = *n.CompanyID
	}
	if _, err := s.auditedOne(ctx, by, a, insertReplaySQL, row...); err != nil {
		return Replay{}, fmt.Errorf("create replay: %w", err)
	}
	return s.FindAnyReplay(ctx, n.ID)
}
