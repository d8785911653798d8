package mailing

import (
	"context"
	"fmt"

	"github.com/google/uuid"
	"github.com/jmoiron/sqlx"

	"email-gateway/shared/store/internal/pg"
)

// EntryAction is a command of the mailing's owner that remains to be applied to its entries.
type EntryAction string

const (
	// ActionCancel cancels the waiting entries of a cancelled mailing.
	ActionCancel EntryAction = "cancel"
	// ActionRetryFailed sends the failed and expired entries again.
	ActionRetryFailed EntryAction = "retry-failed"
)

// entryActionsSQL scans mailings_open and locks nothing.
const entryActionsSQL = `SELECT id, company_id FROM mailings WHERE settling IS NOT NULL ORDER BY id`

// ActionMailing is a mailing with an EntryAction.
type ActionMailing struct {
	ID        uuid.UUID `db:"id"`
	CompanyID uuid.UUID `db:"company_id"`
}

// MailingsWithEntryAction lists the mailings with an EntryAction.
func (s *Store) MailingsWithEntryAction(ctx context.Context) ([]ActionMailing, error) {
	var all []ActionMailing
	if err := s.db.SelectContext(ctx, &all, entryActionsSQL); err != nil {
		return nil, fmt.Errorf("list mailings with an entry action: %w", pg.Translate(err))
	}
	return all, nil
}

// EntryActionResult is the effect of one round on a mailing.
type EntryActionResult struct {
	Kind EntryAction // "" = nothing: no action is set, or another process applies it
	// More: the round did not reach the mailing's last entry.
	More bool
	// Left: the round reached the last entry, but entries that a worker is sending, or that are
	// locked, remain to be processed.
	Left bool
	// Cancelled entries had not become emails yet.
	Cancelled int
}

// actionLockSQL takes the lock that limits a round to one process, without waiting, until the end
// of the transaction. It locks one of the 256 rows of owner_locks by primary key, which otherwise
// only the owner of the tables can lock. It does not lock the mailing's row, which the replay of
// an email updates.
const actionLockSQL = `SELECT hold_settling($1)`

// actionStateSQL reads one row by primary key.
const actionStateSQL = `
SELECT settling, coalesce(settled_to, first_entry) AS from_entry, settled_to, last_entry FROM mailings WHERE id = $1 AND settling IS NOT NULL`

// The statements read a range of the primary key of mailing_entries in id order, as
// nextEntriesSQL does, and lock nothing.
const (
	actionRangeSQL = `
SELECT id, status <> 'PENDING' AS email FROM mailing_entries
WHERE id >= $2 AND id <= $3 AND id IS DISTINCT FROM $4 AND (mailing_id = $1) IS TRUE`
	toCancelSQL = actionRangeSQL + ` AND status IN ('PENDING', 'QUEUED') ORDER BY id LIMIT $5`
	toRetrySQL  = actionRangeSQL + ` AND status IN ('FAILED', 'EXPIRED') AND NOT outcome_unknown ORDER BY id LIMIT $5`
)

// cancelEntriesSQL locks entries by primary key. They have no email: the
// expander makes emails only while the mailing is PROCESSING. Entries that another transaction has
// locked are left for the next round.
const cancelEntriesSQL = `
UPDATE mailing_entries SET status = 'CANCELLED', cpf_cnpj_enc = NULL, updated_at = now()
WHERE id = ANY (ARRAY(SELECT id FROM mailing_entries WHERE id = ANY ($1::uuid[]) AND status = 'PENDING' FOR UPDATE SKIP LOCKED))`

// These statements end a round. They find the mailing's row by primary key, and change nothing if
// the mailing's action was replaced during the round: the next round applies the new one.
const (
	actionPositionSQL = `UPDATE mailings SET settled_to = $3 WHERE id = $1 AND settling = $2`
	actionDoneSQL     = `
UPDATE mailings SET settling = NULL, settled_to = NULL, counted_at = NULL, updated_at = now() WHERE id = $1 AND settling = $2`
	actionUnfinishedSQL = `
SELECT EXISTS (SELECT FROM mailing_entries
               WHERE id >= (SELECT first_entry FROM mailings WHERE id = $1) AND id <= (SELECT last_entry FROM mailings WHERE id = $1)
                 AND (mailing_id = $1) IS TRUE AND status IN ('PENDING', 'QUEUED'))`
)

// ApplyEntryAction processes at most limit of a mailing's entries. It cancels the entries without an
// email, and calls move with the ids of the others: move changes their emails with Advance and returns
// those that are Locked. Emails that a worker is sending are skipped; a cancelled mailing is scanned
// again until none is left. No other process handles the same entries until the round is committed;
// after a crash they are processed again. The result has Left set if another transaction keeps the
// mailing's row locked for longer than pg.GroupWait.
func (s *Store) ApplyEntryAction(
	ctx context.Context, id uuid.UUID, limit int, move func(context.Context, EntryAction, []uuid.UUID) (locked []uuid.UUID, err error),
) (EntryActionResult, error) {
	var done EntryActionResult
	err := s.db.InTx(ctx, func(tx *sqlx.Tx) error {
		var err error
		done, err = applyEntryAction(ctx, tx, id, limit, move)
		return err
	})
	switch {
	case pg.IsLockTimeout(err): // move has changed the emails, the rest is rolled back
		return EntryActionResult{Kind: done.Kind, Left: true}, nil
	case err != nil:
		return EntryActionResult{}, fmt.Errorf("apply entry action: %w", err)
	}
	return done, nil
}

func applyEntryAction(
	ctx context.Context, tx *sqlx.Tx, id uuid.UUID, limit int, move func(context.Context, EntryAction, []uuid.UUID) ([]uuid.UUID, error),
) (EntryActionResult, error) {
	if err := pg.MayIdle(ctx, tx); err != nil {
		return EntryActionResult{}, err
	}
	if _, err := tx.ExecContext(ctx, pg.BoundWaitSQL, pg.LockTimeout(pg.GroupWait)); err != nil {
		return EntryActionResult{}, pg.Translate(err)
	}
	var ours bool
	if err := tx.GetContext(ctx, &ours, actionLockSQL, id); err != nil || !ours {
		return EntryActionResult{}, pg.Translate(err)
	}
	var states []struct {
		Kind EntryAction `db:"settling"`
		From *uuid.UUID  `db:"from_entry"`
		To   *uuid.UUID  `db:"settled_to"`
		Last *uuid.UUID  `db:"last_entry"`
	}
	if err := tx.SelectContext(ctx, &states, actionStateSQL, id); err != nil || len(states) == 0 {
		return EntryActionResult{}, pg.Translate(err)
	}
	state := states[0]
	list := toCancelSQL
	if state.Kind == ActionRetryFailed {
		list = toRetrySQL
	}
	if _, err := tx.ExecContext(ctx, pg.AlongKeySQL); err != nil {
		return EntryActionResult{}, pg.Translate(err)
	}
	var entries []struct {
		ID    uuid.UUID `db:"id"`
		Email bool      `db:"email"`
	}
	if err := tx.SelectContext(ctx, &entries, list, id, state.From, state.Last, state.To, limit); err != nil {
		return EntryActionResult{}, pg.Translate(err)
	}
	var emails, waiting []uuid.UUID
	for _, e := range entries {
		if e.Email {
			emails = append(emails, e.ID)
		} else {
			waiting = append(waiting, e.ID)
		}
	}
	var locked []uuid.UUID
	if len(emails) > 0 {
		var err error
		if locked, err = move(ctx, state.Kind, emails); err != nil {
			return EntryActionResult{}, err // move's error is returned unchanged, so that callers can compare it
		}
	}
	done := EntryActionResult{Kind: state.Kind, More: len(entries) == limit}
	if len(waiting) > 0 {
		cancelled, err := tx.ExecContext(ctx, cancelEntriesSQL, pg.UUIDArray(waiting))
		if err != nil {
			return done, pg.Translate(err)
		}
		n, err := cancelled.RowsAffected()
		if err != nil {
			return done, err
		}
		done.Cancelled = int(n)
	}
	// Failed entries are scanned once, so the next round begins with the first locked one.
	// The entries after it that were moved are no longer failed, so the next round gets further.
	if state.Kind == ActionRetryFailed && len(locked) > 0 {
		first, _ := pg.IDRange(locked, func(id *uuid.UUID) uuid.UUID { return *id })
		done.More = done.More && len(locked) < limit
		done.Left = !done.More
		_, err := tx.ExecContext(ctx, actionPositionSQL, id, string(state.Kind), pg.IDBefore(first))
		return done, pg.Translate(err)
	}
	if done.More {
		_, err := tx.ExecContext(ctx, actionPositionSQL, id, string(state.Kind), entries[limit-1].ID)
		return done, pg.Translate(err)
	}
	if state.Kind == ActionCancel {
		if err := tx.GetContext(ctx, &done.Left, actionUnfinishedSQL, id); err != nil {
			return EntryActionResult{}, pg.Translate(err)
		}
	}
	if done.Left {
		_, err := tx.ExecContext(ctx, actionPositionSQL, id, string(state.Kind), nil)
		return done, pg.Translate(err)
	}
	_, err := tx.ExecContext(ctx, actionDoneSQL, id, string(state.Kind))
	return done, pg.Translate(err)
}
