package deadletter

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jmoiron/sqlx"

	"email-gateway/shared/email"
	"email-gateway/shared/store/audit"
	"email-gateway/shared/store/emails"
	"email-gateway/shared/store/internal/pg"
	"email-gateway/shared/store/internal/pgtext"
)

// Shown is a dead letter of a company with its email, both as of one commit.
type Shown struct {
	Letter
	Email *emails.Shown // nil = the dead letter has no email, or the email was purged
}

// showIn reads a dead letter with its email in the transaction that resolves it. A read after the commit could fail and hide
// that the dead letter was resolved.
func showIn(ctx context.Context, tx *sqlx.Tx, l Letter) (shown Shown, err error) {
	if shown.Letter, err = findLetter(ctx, tx, findLetterSQL, l.ID, l.company()); err != nil {
		return Shown{}, err
	}
	if shown.Target != email.TargetSend || shown.OutboxID == nil {
		return shown, nil
	}
	found, err := emails.ShowIn(ctx, tx, l.company(), *shown.OutboxID)
	switch {
	case errors.Is(err, pg.ErrNotFound): // purged
		return shown, nil
	case err != nil:
		return Shown{}, err
	}
	shown.Email = &found
	return shown, nil
}

// RetryOne is RetryDeadLetter for a request: it returns the dead letter as of the commit. If a concurrent request of the same
// actor has retried the dead letter, RetryOne returns it without an error.
func (s *Store) RetryOne(ctx context.Context, l Letter, r LetterRetry) (shown Shown, err error) {
	r.read = func(tx *sqlx.Tx) (err error) {
		shown, err = showIn(ctx, tx, l)
		return err
	}
	err = s.retryDeadLetter(ctx, l, r)
	var refused *NotReplayableError
	if l.ResolvedAt != nil || !errors.As(err, &refused) {
		return shown, err
	}
	if readErr := s.db.InTx(ctx, r.read); readErr != nil && !errors.Is(readErr, pg.ErrNotFound) {
		return Shown{}, fmt.Errorf("retry dead letter: look it up: %w", readErr)
	}
	if shown.retriedBy(r) {
		return shown, nil
	}
	return Shown{}, err
}

// discardLettersSQL finds rows by primary key and locks them in id order.
const discardLettersSQL = `
UPDATE dead_letters SET resolved_at = now(), updated_at = now(), resolution = 'discarded', resolved_by = $2, resolution_note = nullif($3, ''), replay_id = $4
WHERE id IN (SELECT id FROM dead_letters WHERE id = ANY ($1::uuid[]) AND resolved_at IS NULL ORDER BY id FOR UPDATE)`

// DiscardOne resolves an open dead letter without further action; note is the reason. It returns the dead letter as of the
// commit, and false if it was resolved already.
func (s *Store) DiscardOne(ctx context.Context, l Letter, by audit.Actor, note string) (Shown, bool, error) {
	type result struct {
		shown     Shown
		discarded bool
	}
	results, err := pg.InBoundedTx(ctx, s.db, pg.HeldRow{Company: l.company(), Name: l.ID.String()}, func(tx *sqlx.Tx, _ time.Duration) ([]result, error) {
		done, err := tx.ExecContext(ctx, discardLettersSQL, pg.UUIDArray([]uuid.UUID{l.ID}), by.String(), pgtext.WithoutNUL(note), nil)
		if err != nil {
			return nil, pg.Translate(err)
		}
		n, err := done.RowsAffected()
		if err != nil {
			return nil, err
		}
		shown, err := showIn(ctx, tx, l)
		return []result{{shown, n > 0}}, err
	})
	if err != nil {
		return Shown{}, false, fmt.Errorf("discard dead letter: %w", pg.AsBusy(err))
	}
	return results[0].shown, results[0].discarded, nil
}
