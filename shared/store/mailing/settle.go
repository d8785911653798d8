package mailing

import (
	"context"
	"fmt"

	"github.com/google/uuid"
	"github.com/jmoiron/sqlx"

	"email-gateway/shared/store/internal/pg"
)

// SettleKind is what remains to be done to a mailing's entries.
type SettleKind string

const (
	// SettleCancel ends the entries that wait, after the mailing was cancelled.
	SettleCancel SettleKind = "cancel"
	// SettleRetryFailed sends the entries that failed once more.
	SettleRetryFailed SettleKind = "retry-failed"
)

// settlingSQL goes along mailings_open and locks nothing.
const settlingSQL = `SELECT id FROM mailings WHERE settling IS NOT NULL ORDER BY id`

// SettlingMailings lists the mailings whose entries something remains to be done to.
func (s *Store) SettlingMailings(ctx context.Context) ([]uuid.UUID, error) {
	var ids []uuid.UUID
	if err := s.db.SelectContext(ctx, &ids, settlingSQL); err != nil {
		return nil, fmt.Errorf("list mailings to settle: %w", pg.Translate(err))
	}
	return ids, nil
}

// Settled is the effect of one round on a mailing.
type Settled struct {
	Kind SettleKind // "" = nothing: it needs no settling, or another one is at it
	// More: the round did not come to the mailing's last entry.
	More bool
	// Left: it did, and entries that a worker is sending, or that are locked, remain to be
	// processed.
	Left bool
	// Cancelled entries had not become emails yet.
	Cancelled int
}

// A round belongs to one process, so that two do not do the same work twice. The lock
// is not the mailing's row, which the replay of an email updates, but one of 256 rows of
// owner_locks by primary key, which only the tables' owner can lock otherwise; it
// ends with the transaction and is not waited for.
const settleLockSQL = `SELECT hold_settling($1)`

// settleStateSQL reads one row by primary key.
const settleStateSQL = `
SELECT settling, coalesce(settled_to, first_entry) AS from_entry, settled_to, last_entry FROM mailings WHERE id = $1 AND settling IS NOT NULL`

// The entries of a round are a range of the primary key of mailing_entries, read in its
// order: see nextEntriesSQL. Nothing is locked.
const (
	settleRangeSQL = `
SELECT id, status <> 'PENDING' AS email FROM mailing_entries
WHERE id >= $2 AND id <= $3 AND id IS DISTINCT FROM $4 AND (mailing_id = $1) IS TRUE`
	toCancelSQL = settleRangeSQL + ` AND status IN ('PENDING', 'QUEUED') ORDER BY id LIMIT $5`
	toRetrySQL  = settleRangeSQL + ` AND status IN ('FAILED', 'EXPIRED') AND NOT outcome_unknown ORDER BY id LIMIT $5`
)

// cancelEntriesSQL locks entries by primary key. There is no email of them: the
// expander needs the mailing to be in PROCESSING. Entries that another transaction has locked
// are left for the next time.
const cancelEntriesSQL = `
UPDATE mailing_entries SET status = 'CANCELLED', cpf_cnpj_enc = NULL, updated_at = now()
WHERE id = ANY (ARRAY(SELECT id FROM mailing_entries WHERE id = ANY ($1::uuid[]) AND status = 'PENDING' FOR UPDATE SKIP LOCKED))`

// The end of a round, on the mailing's row by primary key. A mailing that got another
// command during the round is left alone, and processed again.
const (
	settledToSQL = `UPDATE mailings SET settled_to = $3 WHERE id = $1 AND settling = $2`
	settledSQL   = `
UPDATE mailings SET settling = NULL, settled_to = NULL, counted_at = NULL, updated_at = now() WHERE id = $1 AND settling = $2`
	unsettledSQL = `
SELECT EXISTS (SELECT FROM mailing_entries
               WHERE id >= (SELECT first_entry FROM mailings WHERE id = $1) AND id <= (SELECT last_entry FROM mailings WHERE id = $1)
                 AND (mailing_id = $1) IS TRUE AND status IN ('PENDING', 'QUEUED'))`
)

// SettleMailing takes at most limit of a mailing's entries. It ends those without an email
// itself; it gives the ids of the other emails to move, which moves them with
// Advance and returns those that are Locked. It leaves emails that a worker is sending: a
// cancelled mailing is scanned again until none is left. Until the round is committed,
// no other process takes the same entries; after a crash they are taken again. A round whose
// mailing another transaction has locked for longer than pg.GroupWait is Left.
func (s *Store) SettleMailing(
	ctx context.Context, id uuid.UUID, limit int, move func(context.Context, SettleKind, []uuid.UUID) (locked []uuid.UUID, err error),
) (Settled, error) {
	var done Settled
	err := s.db.InTx(ctx, func(tx *sqlx.Tx) error {
		var err error
		done, err = settle(ctx, tx, id, limit, move)
		return err
	})
	switch {
	case pg.IsLockTimeout(err): // the emails have moved, the rest is rolled back
		return Settled{Kind: done.Kind, Left: true}, nil
	case err != nil:
		return Settled{}, fmt.Errorf("settle mailing: %w", err)
	}
	return done, nil
}

func settle(
	ctx context.Context, tx *sqlx.Tx, id uuid.UUID, limit int, move func(context.Context, SettleKind, []uuid.UUID) ([]uuid.UUID, error),
) (Settled, error) {
	if err := pg.MayIdle(ctx, tx); err != nil {
		return Settled{}, err
	}
	if _, err := tx.ExecContext(ctx, pg.BoundWaitSQL, pg.LockTimeout(pg.GroupWait)); err != nil {
		return Settled{}, pg.Translate(err)
	}
	var ours bool
	if err := tx.GetContext(ctx, &ours, settleLockSQL, id); err != nil || !ours {
		return Settled{}, pg.Translate(err)
	}
	var states []struct {
		Kind SettleKind `db:"settling"`
		From *uuid.UUID `db:"from_entry"`
		To   *uuid.UUID `db:"settled_to"`
		Last *uuid.UUID `db:"last_entry"`
	}
	if err := tx.SelectContext(ctx, &states, settleStateSQL, id); err != nil || len(states) == 0 {
		return Settled{}, pg.Translate(err)
	}
	state := states[0]
	list := toCancelSQL
	if state.Kind == SettleRetryFailed {
		list = toRetrySQL
	}
	if _, err := tx.ExecContext(ctx, pg.AlongKeySQL); err != nil {
		return Settled{}, pg.Translate(err)
	}
	var entries []struct {
		ID    uuid.UUID `db:"id"`
		Email bool      `db:"email"`
	}
	if err := tx.SelectContext(ctx, &entries, list, id, state.From, state.Last, state.To, limit); err != nil {
		return Settled{}, pg.Translate(err)
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
			return Settled{}, err // not the database's
		}
	}
	done := Settled{Kind: state.Kind, More: len(entries) == limit}
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
	// Failed entries are scanned once, so the next round begins with the first locked
	// one. Entries after it that were moved are not failed any more, so that the next round
	// advances further than this one.
	if state.Kind == SettleRetryFailed && len(locked) > 0 {
		first, _ := pg.IDRange(locked, func(id *uuid.UUID) uuid.UUID { return *id })
		done.More = done.More && len(locked) < limit
		done.Left = !done.More
		_, err := tx.ExecContext(ctx, settledToSQL, id, string(state.Kind), pg.IDBefore(first))
		return done, pg.Translate(err)
	}
	if done.More {
		_, err := tx.ExecContext(ctx, settledToSQL, id, string(state.Kind), entries[limit-1].ID)
		return done, pg.Translate(err)
	}
	if state.Kind == SettleCancel {
		if err := tx.GetContext(ctx, &done.Left, unsettledSQL, id); err != nil {
			return Settled{}, pg.Translate(err)
		}
	}
	if done.Left {
		_, err := tx.ExecContext(ctx, settledToSQL, id, string(state.Kind), nil)
		return done, pg.Translate(err)
	}
	_, err := tx.ExecContext(ctx, settledSQL, id, string(state.Kind))
	return done, pg.Translate(err)
}
