package mailing

import (
	"context"

	"github.com/google/uuid"
	"github.com/jmoiron/sqlx"

	"email-gateway/shared/store/internal/pg"
)

// resolveMailingLettersSQL finds rows by dead_letters_mailing.
const resolveMailingLettersSQL = `
UPDATE dead_letters SET resolved_at = now(), updated_at = now(), resolution = $2, resolved_by = $3, replay_id = $4
WHERE mailing_id = $1 AND target = 'mailing.process' AND resolved_at IS NULL`

// Resolutions of dead letters, as package deadletter names them, which imports this one.
const (
	lettersRetried   = "retried"
	lettersDiscarded = "discarded"
)

func resolveMailingLetters(ctx context.Context, tx *sqlx.Tx, mailing uuid.UUID, resolution string, by *string, replay *uuid.UUID) error {
	_, err := tx.ExecContext(ctx, resolveMailingLettersSQL, mailing, resolution, by, replay)
	return pg.Translate(err)
}

// RetryFailedMailing starts a FAILED mailing again and resolves its dead letters; by is who resolves them, replay the replay that
// does so (uuid.Nil = none). It calls read, unless it is nil, in its transaction before the commit. It returns *StateError for a
// mailing in another status, and otherwise the errors of ResumeMailing.
func (s *Store) RetryFailedMailing(ctx context.Context, company, id uuid.UUID, by string, replay uuid.UUID, read func(tx *sqlx.Tx) error) error {
	retry := retryFailed(ctx, by, replay)
	_, err := s.control(ctx, "retry dead letter", company, id, func(tx *sqlx.Tx, m *Mailing) error {
		if err := retry(tx, m); err != nil || read == nil {
			return err
		}
		return read(tx)
	}, runs)
	return err
}

// RetryFailedMailingIn is RetryFailedMailing inside the caller's transaction.
func RetryFailedMailingIn(ctx context.Context, tx *sqlx.Tx, company, id uuid.UUID, by string, replay uuid.UUID) error {
	_, err := controlIn(ctx, tx, company, id, retryFailed(ctx, by, replay), runs)
	return err
}

func retryFailed(ctx context.Context, by string, replay uuid.UUID) func(tx *sqlx.Tx, m *Mailing) error {
	return func(tx *sqlx.Tx, m *Mailing) error {
		if m.Status != Failed {
			return &StateError{Status: m.Status, Reason: "only a FAILED mailing can be retried"}
		}
		if err := resume(ctx, tx, m); err != nil {
			return err
		}
		return resolveMailingLetters(ctx, tx, m.ID, lettersRetried, &by, pg.OptionalUUID(replay))
	}
}
