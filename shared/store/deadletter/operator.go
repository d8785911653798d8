package deadletter

import (
	"context"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jmoiron/sqlx"

	"email-gateway/shared/email"
	"email-gateway/shared/store/audit"
	"email-gateway/shared/store/internal/pg"
	"email-gateway/shared/store/internal/pgtext"
)

// RetryDeadLetterAs is RetryDeadLetter by an operator.
func (s *Store) RetryDeadLetterAs(ctx context.Context, by audit.Operator, l Letter, ttl time.Duration) error {
	_, err := audit.Apply(ctx, s.db, by, l.act("dlq.retry"), func(tx *sqlx.Tx, _ *audit.Change) error {
		// Not RetryDeadLetter: it may need a second connection while this transaction is open.
		return s.retryDeadLetter(ctx, l, LetterRetry{Actor: by.Actor(), TTL: ttl, tx: tx})
	})
	return err
}

// DiscardDeadLetterAs resolves an open dead letter without further action on behalf of an operator, whose reason is the note.
// It returns false if the dead letter was resolved already.
func (s *Store) DiscardDeadLetterAs(ctx context.Context, by audit.Operator, l Letter) (bool, error) {
	did, err := audit.ApplyOne(ctx, s.db, by, l.act("dlq.discard"), discardLettersSQL, pg.UUIDArray([]uuid.UUID{l.ID}), by.Actor().String(), pgtext.WithoutNUL(by.Reason), nil)
	return did, pg.Wrap("discard dead letter", err)
}

func (l Letter) act(action string) audit.Change {
	a := audit.Change{Action: action, Subject: l.ID.String(), Details: map[string]any{"reason": l.Reason, "target": l.Target}}
	if l.CompanyID != nil {
		a.Company = *l.CompanyID
	}
	if l.OutboxID != nil {
		a.Details["outboxId"] = *l.OutboxID
	}
	return a
}

// CreateReplayAs is CreateReplay by an operator, whose reason is the note.
func (s *Store) CreateReplayAs(ctx context.Context, by audit.Operator, n NewReplay) (Replay, error) {
	n.Actor, n.Note = by.Actor(), by.Reason
	row, err := s.replayRow(ctx, n, maxCountScans)
	if err != nil {
		return Replay{}, err
	}
	f := n.Filter
	if f.Recipient != "" {
		f.Recipient = email.MaskAddress(f.Recipient)
	}
	a := audit.Change{
		Action: fmt.Sprintf("dlq.%s-many", n.Action), Subject: n.ID.String(),
		Details: map[string]any{"filter": f, "matched": row[len(row)-1], "rate": n.Rate},
	}
	if n.CompanyID != nil {
		a.Company = *n.CompanyID
	}
	var made Replay
	_, err = audit.Apply(ctx, s.db, by, a, func(tx *sqlx.Tx, _ *audit.Change) (err error) {
		made, err = insertReplay(ctx, tx, n.ID, row)
		return err
	})
	return made, pg.Wrap("create replay", err)
}
