// Package breaker holds the statements of the email provider's circuit breaker, the one row of provider_gate: its
// state, which attempt or account opened it, which process closed it, and an operator's hold; and of provider_refusals,
// the refusals that do not concern the account.
package breaker

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jmoiron/sqlx"
	"github.com/lib/pq"

	"email-gateway/shared/store/audit"
	"email-gateway/shared/store/internal/pg"
	"email-gateway/shared/store/lane"
)

// Store reads and writes the circuit breaker, which all processes share. It is safe for concurrent use.
type Store struct{ db *pg.DB }

// New returns a Store.
func New(db *pg.DB) *Store { return &Store{db: db} }

// Breaker is the row of the circuit breaker.
type Breaker struct {
	// IsOpen: only a probe is sent. The column is generated from state, which has the words of a gate: 'shut' = the breaker is
	// open, 'open' = it is closed.
	IsOpen bool      `db:"is_open" json:"isOpen"`
	Since  time.Time `db:"since" json:"since"` // it has been open or closed since then
	// Reason is the code of the answer that opened the breaker; nil while it is closed.
	Reason *string `db:"reason" json:"reason,omitempty"`
	// ChangedBy is the process that opened or closed it last.
	ChangedBy *string `db:"changed_by" json:"changedBy,omitempty"`
	// AttemptID is the attempt that opened it last; nil if the state of the provider's account did.
	AttemptID *uuid.UUID `db:"attempt_id" json:"attemptId,omitempty"`
	Openings  int64      `db:"shuts" json:"openings"` // how many times it was opened

	ProbeID *uuid.UUID `db:"probe_id" json:"probeId,omitempty"`
	ProbeAt *time.Time `db:"probe_at" json:"probeAt,omitempty"`

	// HeldAt is the time at which an operator stopped all sending, whatever the state: probes are not sent either.
	HeldAt     *time.Time `db:"held_at" json:"heldAt,omitempty"`
	HeldReason *string    `db:"held_reason" json:"heldReason,omitempty"`
}

// Pass is the state of the circuit breaker when an email was claimed.
type Pass struct {
	Probe    bool  // it was open, and the email is its probe
	Openings int64 // Breaker.Openings
}

// OpenedSince reports whether the breaker is open, or was opened after the claim.
func (b Breaker) OpenedSince(p Pass) bool { return b.IsOpen || b.Openings != p.Openings }

// The parts of dispatch.waitSQL, sql.Load and sql.Advance that read the circuit breaker, by provider_gate_pkey, once
// per statement: whether emails may pass, which email is the probe, and how many times the breaker was opened. They read it
// without a lock, and a missing row means closed.
const (
	IsClosedSQL = `coalesce((SELECT NOT is_open AND held_at IS NULL FROM provider_gate WHERE id = 1), true)`
	ProbeSQL    = `(SELECT probe_id FROM provider_gate WHERE id = 1 AND is_open AND held_at IS NULL)`
	OpeningsSQL = `coalesce((SELECT shuts FROM provider_gate WHERE id = 1), 0)`
)

const findSQL = `
SELECT is_open, since, reason, changed_by, attempt_id, shuts, probe_id, probe_at, held_at, held_reason FROM provider_gate WHERE id = 1`

// Breaker returns the circuit breaker as it is now.
func (s *Store) Breaker(ctx context.Context) (Breaker, error) {
	var b Breaker
	if err := s.db.GetContext(ctx, &b, findSQL); err != nil {
		return Breaker{}, fmt.Errorf("read circuit breaker: %w", pg.Translate(err))
	}
	return b, nil
}

// ErrLocked: another transaction has locked the row of provider_gate. Nothing was written.
var ErrLocked = errors.New("another transaction has locked the row of provider_gate")

// WaitSQL bounds the wait of its statement for the row: the programs lock it for milliseconds, and without the bound the lock
// of another program would occupy a connection until statement_timeout.
const WaitSQL = `(SELECT set_config('lock_timeout', '200ms', true)) IS NOT NULL`

// WriteError is the error of a statement with WaitSQL.
func WriteError(err error) error {
	if pg.IsLockTimeout(err) {
		return errors.Join(ErrLocked, err)
	}
	return err
}

// Opening is a request to open the circuit breaker, which stops sending.
type Opening struct {
	Reason  string    // code
	By      string    // process
	Attempt uuid.UUID // the attempt whose answer opens it
	Pass    Pass      // of that attempt
	// Company is that of the email: probes begin with the next one.
	Company uuid.NullUUID
	// Keys are set if the answer may concern these instead of the account: see refusals.go.
	Keys []string
}

// openSQL locks the one row if the breaker is closed and was not opened since the attempt's claim, unless the refusal is known
// to concern its keys alone; else it does not lock the row. The period until the first probe begins now. It may run twice for
// one attempt, with the same result.
const openSQL = `
WITH ` + knownSQL + `, opened AS (
    UPDATE provider_gate SET state = 'shut', since = now(), reason = $3, changed_by = $4, attempt_id = $2, shuts = shuts + 1,
           probe_id = NULL, probe_at = now(), opener_company = $6
    WHERE id = 1 AND NOT is_open AND shuts = $5 AND NOT EXISTS (SELECT FROM known) AND ` + WaitSQL + `
    RETURNING id
), ` + noteSQL + `
SELECT EXISTS (SELECT FROM opened) OR EXISTS (SELECT FROM provider_gate WHERE id = 1 AND attempt_id = $2) AS opened,
       EXISTS (SELECT FROM known) AS disproved,
       EXISTS (SELECT FROM provider_gate WHERE id = 1 AND is_open AND shuts = $5 AND attempt_id IS NOT NULL) AS probing`

// Opened is the result of OpenBreaker. With neither of the first two, another attempt opened the breaker since this
// attempt's claim: then the answer has no effect.
type Opened struct {
	Opened    bool `db:"opened"`    // by this attempt
	Disproved bool `db:"disproved"` // the answer concerns the opening's keys, not the account
	// Probing: the breaker was open at the attempt's claim and still is, because of an earlier answer to an email. Then only an
	// accepted probe, or one that is refused alone, closes it.
	Probing bool `db:"probing"`
}

// OpenBreaker opens the circuit breaker. ErrLocked: it is unchanged.
func (s *Store) OpenBreaker(ctx context.Context, o Opening) (done Opened, err error) {
	err = pg.Write(func(args []any) error {
		return s.db.GetContext(ctx, &done, openSQL, args...)
	}, pq.Array(o.Keys), o.Attempt, o.Reason, o.By, o.Pass.Openings, o.Company)
	if err != nil {
		return Opened{}, fmt.Errorf("open circuit breaker: %w", WriteError(err))
	}
	return done, nil
}

// openByAccountSQL locks the one row if the breaker is closed. A NULL attempt means that the state of the provider's account
// opened it; probe_at delays the first probe by a pause.
const openByAccountSQL = `
UPDATE provider_gate SET state = 'shut', since = now(), reason = $1, changed_by = $2, attempt_id = NULL, shuts = shuts + 1,
       probe_id = NULL, probe_at = now(), opener_company = NULL
WHERE id = 1 AND NOT is_open AND ` + WaitSQL

// OpenBreakerByAccount opens the circuit breaker because the provider reports that the account may not send, before an email
// is refused. opened is false when it is open already. ErrLocked: it is unchanged.
func (s *Store) OpenBreakerByAccount(ctx context.Context, reason, by string) (opened bool, err error) {
	done, err := s.db.Exec(ctx, openByAccountSQL, reason, by)
	if err != nil {
		return false, fmt.Errorf("open circuit breaker by account: %w", WriteError(err))
	}
	n, err := done.RowsAffected()
	return n > 0, pg.Wrap("open circuit breaker by account", err)
}

// LastOpening is the reason and the duration of the last opening.
type LastOpening struct {
	Reason   string        `db:"reason"`
	Duration time.Duration `db:"-"`
	Millis   int64         `db:"millis"`
}

// Closing is a request to close the circuit breaker that was open when a probe was claimed.
type Closing struct {
	By   string // process
	Pass Pass   // of the probe's attempt
	// Accepted is false if the provider refused the probe's email alone. A provider may check an email before it checks the
	// account, so that does not close a breaker opened by OpenBreakerByAccount.
	Accepted bool
	Keys     []string // of the probe's email, as in Opening
}

// closeSQL locks the one row if the breaker is open and was not closed and opened again since. A refusal ($3 = false) does not
// close a breaker that the state of the account opened.
const closeSQL = `
WITH closed AS (
    UPDATE provider_gate g SET state = 'open', since = now(), reason = NULL, changed_by = $1, probe_id = NULL, probe_at = NULL
    FROM (SELECT id, reason, (extract(epoch FROM now() - since) * 1000)::bigint AS millis FROM provider_gate WHERE id = 1) was
    WHERE g.id = was.id AND g.is_open AND g.shuts = $2 AND ($3 OR g.attempt_id IS NOT NULL) AND ` + WaitSQL + `
    RETURNING was.reason, was.millis
), ` + disproveSQL + `
SELECT reason, millis FROM closed`

// CloseBreaker closes the circuit breaker. closed is false also when the breaker is closed, or was opened again since.
// ErrLocked: it is unchanged.
func (s *Store) CloseBreaker(ctx context.Context, c Closing) (was LastOpening, closed bool, err error) {
	return s.closeBreaker(ctx, closeSQL, c.By, c.Pass.Openings, c.Accepted, pq.Array(c.Keys))
}

func (s *Store) closeBreaker(ctx context.Context, statement string, args ...any) (was LastOpening, closed bool, err error) {
	var rows []LastOpening
	err = pg.Write(func(args []any) error { return s.db.SelectContext(ctx, &rows, statement, args...) }, args...)
	if err != nil || len(rows) == 0 {
		return LastOpening{}, false, pg.Wrap("close circuit breaker", WriteError(err))
	}
	rows[0].Duration = time.Duration(rows[0].Millis) * time.Millisecond
	return rows[0], true, nil
}

// closeByAccountSQL locks the one row if the state of the account opened the breaker.
const closeByAccountSQL = `
UPDATE provider_gate g SET state = 'open', since = now(), reason = NULL, changed_by = $1, probe_id = NULL, probe_at = NULL
FROM (SELECT id, reason, (extract(epoch FROM now() - since) * 1000)::bigint AS millis FROM provider_gate WHERE id = 1) was
WHERE g.id = was.id AND g.is_open AND g.attempt_id IS NULL AND ` + WaitSQL + `
RETURNING was.reason, was.millis`

// CloseBreakerByAccount reverses OpenBreakerByAccount. closed is false when the breaker is closed, or was opened by the answer
// to an email. ErrLocked: it is unchanged.
func (s *Store) CloseBreakerByAccount(ctx context.Context, by string) (was LastOpening, closed bool, err error) {
	return s.closeBreaker(ctx, closeByAccountSQL, by)
}

// An operator's hold, on the one row. The update is a no-op if the hold is already the requested one. It is
// independent of the state: a probe never ends it.
const (
	holdSQL = `
UPDATE provider_gate SET held_at = coalesce(held_at, now()), held_reason = $1
WHERE id = $2 AND (held_at IS NULL OR held_reason IS DISTINCT FROM $1)`
	releaseSQL = `UPDATE provider_gate SET held_at = NULL, held_reason = NULL WHERE id = $1 AND held_at IS NOT NULL`
	// lockSQL locks the row, held or not, so that of two simultaneous changes the second one finds the hold of the first.
	lockSQL = `SELECT FROM provider_gate WHERE id = $1 FOR NO KEY UPDATE`
	// heldSQL returns the hold if it has another reason than $2, NULL = any.
	heldSQL = `
SELECT held_at AS since, coalesce(held_reason, '') AS reason FROM provider_gate
WHERE id = $1 AND held_at IS NOT NULL AND coalesce(held_reason, '') IS DISTINCT FROM $2::text`
)

// held locks the row and returns the hold, if it has another reason; nil = any.
func held(ctx context.Context, tx *sqlx.Tx, reason *string) (holds []lane.Hold, err error) {
	if _, err := tx.ExecContext(ctx, lockSQL, 1); err != nil {
		return nil, pg.Translate(err)
	}
	err = tx.SelectContext(ctx, &holds, heldSQL, 1, reason)
	return holds, pg.Translate(err)
}

// HoldBreaker holds back every email of every company until ReleaseBreaker, for the operator's reason. There is one
// hold, which one ReleaseBreaker ends: if another reason is in force, HoldBreaker returns *lane.HeldError, unless
// replace is set: it then changes the reason, keeps the time, and returns the hold that was replaced.
func (s *Store) HoldBreaker(ctx context.Context, by audit.Operator, replace bool) (before []lane.Hold, err error) {
	_, err = audit.Apply(ctx, s.db, by, audit.Change{Action: "gate.hold"}, func(tx *sqlx.Tx, _ *audit.Change) error {
		var err error
		if before, err = held(ctx, tx, &by.Reason); err != nil {
			return err
		}
		if len(before) > 0 && !replace {
			return &lane.HeldError{Holds: before}
		}
		_, err = audit.Affected(tx.ExecContext(ctx, holdSQL, by.Reason, 1))
		return err
	})
	return before, pg.Wrap("hold circuit breaker", err)
}

// HoldIn is HoldBreaker in a transaction whose audit entry names more than the hold. It replaces another hold.
func HoldIn(ctx context.Context, tx *sqlx.Tx, reason string) error {
	_, err := tx.ExecContext(ctx, holdSQL, reason, 1)
	return pg.Wrap("hold circuit breaker", pg.Translate(err))
}

// ReleaseBreaker ends the hold, whatever its reason, and returns it.
func (s *Store) ReleaseBreaker(ctx context.Context, by audit.Operator) (before []lane.Hold, err error) {
	_, err = audit.Apply(ctx, s.db, by, audit.Change{Action: "gate.release"}, func(tx *sqlx.Tx, _ *audit.Change) error {
		var err error
		if before, err = held(ctx, tx, nil); err != nil {
			return err
		}
		_, err = audit.Affected(tx.ExecContext(ctx, releaseSQL, 1))
		return err
	})
	return before, pg.Wrap("release circuit breaker", err)
}
