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
	state, ours, err := lockAction(ctx, tx, id)
	if err != nil || !ours {
		return EntryActionResult{}, err
	}
	next, err := nextActionEntries(ctx, tx, id, state, limit)
	if err != nil {
		return EntryActionResult{}, err
	}
	var locked []uuid.UUID
	if len(next.emails) > 0 {
		if locked, err = move(ctx, state.Kind, next.emails); err != nil {
			return EntryActionResult{}, err // move's error is returned unchanged, so that callers can compare it
		}
	}
	done := EntryActionResult{Kind: state.Kind, More: next.more}
	if done.Cancelled, err = cancelEntries(ctx, tx, next.waiting); err != nil {
		return done, err
	}
	// Failed entries are scanned once, so the next round begins with the first locked one.
	// The entries after it that were moved are no longer failed, so the next round gets further.
	if state.Kind == ActionRetryFailed && len(locked) > 0 {
		first, _ := pg.IDRange(locked, func(id *uuid.UUID) uuid.UUID { return *id })
		done.More = done.More && len(locked) < limit
		done.Left = !done.More
		before := pg.IDBefore(first)
		return done, saveActionPosition(ctx, tx, id, state.Kind, &before)
	}
	if done.More {
		return done, saveActionPosition(ctx, tx, id, state.Kind, &next.last)
	}
	if state.Kind == ActionCancel {
		if err := tx.GetContext(ctx, &done.Left, actionUnfinishedSQL, id); err != nil {
			return EntryActionResult{}, pg.Translate(err)
		}
	}
	if done.Left {
		return done, saveActionPosition(ctx, tx, id, state.Kind, nil)
	}
	_, err = tx.ExecContext(ctx, actionDoneSQL, id, string(state.Kind))
	return done, pg.Translate(err)
}

// actionState is a mailing's action and the range of entries that it has still to process.
type actionState struct {
	Kind EntryAction `db:"settling"`
	From *uuid.UUID  `db:"from_entry"`
	To   *uuid.UUID  `db:"settled_to"`
	Last *uuid.UUID  `db:"last_entry"`
}

// lockAction locks the mailing's action for this transaction and reads its state. ours is false if another process has it, or if
// there is no action.
func lockAction(ctx context.Context, tx *sqlx.Tx, id uuid.UUID) (state actionState, ours bool, err error) {
	if err := pg.MayIdle(ctx, tx); err != nil {
		return actionState{}, false, err
	}
	if _, err := tx.ExecContext(ctx, pg.BoundWaitSQL, pg.LockTimeout(pg.GroupWait)); err != nil {
		return actionState{}, false, pg.Translate(err)
	}
	if err := tx.GetContext(ctx, &ours, actionLockSQL, id); err != nil || !ours {
		return actionState{}, false, pg.Translate(err)
	}
	var states []actionState
	if err := tx.SelectContext(ctx, &states, actionStateSQL, id); err != nil || len(states) == 0 {
		return actionState{}, false, pg.Translate(err)
	}
	return states[0], true, nil
}

// actionEntries are the entries of one round.
type actionEntries struct {
	emails, waiting []uuid.UUID // those with an email, and those without
	last            uuid.UUID
	more            bool // there may be more than limit
}

// nextActionEntries reads the entries of the next round.
func nextActionEntries(ctx context.Context, tx *sqlx.Tx, id uuid.UUID, state actionState, limit int) (actionEntries, error) {
	list := toCancelSQL
	if state.Kind == ActionRetryFailed {
		list = toRetrySQL
	}
	if _, err := tx.ExecContext(ctx, pg.AlongKeySQL); err != nil {
		return actionEntries{}, pg.Translate(err)
	}
	var rows []struct {
		ID    uuid.UUID `db:"id"`
		Email bool      `db:"email"`
	}
	if err := tx.SelectContext(ctx, &rows, list, id, state.From, state.Last, state.To, limit); err != nil {
		return actionEntries{}, pg.Translate(err)
	}
	next := actionEntries{more: len(rows) == limit}
	for _, e := range rows {
		next.last = e.ID
		if e.Email {
			next.emails = append(next.emails, e.ID)
		} else {
			next.waiting = append(next.waiting, e.ID)
		}
	}
	return next, nil
}

// cancelEntries cancels entries without an email, and returns how many were not locked.
func cancelEntries(ctx context.Context, tx *sqlx.Tx, waiting []uuid.UUID) (int, error) {
	if len(waiting) == 0 {
		return 0, nil
	}
	cancelled, err := tx.ExecContext(ctx, cancelEntriesSQL, pg.UUIDArray(waiting))
	if err != nil {
		return 0, pg.Translate(err)
	}
	n, err := cancelled.RowsAffected()
	return int(n), err
}

// saveActionPosition ends a round: the next one begins behind that entry, or, with nil, with the first one.
func saveActionPosition(ctx context.Context, tx *sqlx.Tx, id uuid.UUID, kind EntryAction, to *uuid.UUID) error {
	_, err := tx.ExecContext(ctx, actionPositionSQL, id, string(kind), to)
	return pg.Translate(err)
}
