// Package breaker holds the statements of the email provider's circuit breaker, the one row of provider_gate: its state, who
// opened and closed it, and an operator's hold.
package breaker

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"

	"email-gateway/shared/store/audit"
	"email-gateway/shared/store/internal/pg"
)

// Store is the circuit breaker before the provider, which all processes share. It is safe for concurrent use.
type Store struct{ db *pg.DB }

// New makes a Store.
func New(db *pg.DB) *Store { return &Store{db: db} }

// State is the state of the gate.
type State string

// The states of the gate, in the words of the table provider_gate: an open gate is a closed circuit breaker, a shut gate is an
// open one.
const (
	Open State = "open"
	Shut State = "shut" // only a probe passes
)

// Gate is the row of the circuit breaker, which all workers share.
type Gate struct {
	State State     `db:"state" json:"state"`
	Since time.Time `db:"since" json:"since"` // of the state
	// Reason is the code of the answer that shut the gate; nil while it is open.
	Reason *string `db:"reason" json:"reason,omitempty"`
	// ChangedBy is the process that shut or opened it last.
	ChangedBy *string `db:"changed_by" json:"changedBy,omitempty"`
	// AttemptID is the attempt that shut it last; nil if the provider's account did.
	AttemptID *uuid.UUID `db:"attempt_id" json:"attemptId,omitempty"`
	Shuts     int64      `db:"shuts" json:"shuts"` // how often it was shut

	ProbeID *uuid.UUID `db:"probe_id" json:"probeId,omitempty"`
	ProbeAt *time.Time `db:"probe_at" json:"probeAt,omitempty"`

	// HeldAt is since when an operator holds everything back, in whatever state: no
	// probe passes either.
	HeldAt     *time.Time `db:"held_at" json:"heldAt,omitempty"`
	HeldReason *string    `db:"held_reason" json:"heldReason,omitempty"`
}

// Pass is the state of the gate that a claim saw.
type Pass struct {
	Probe bool  // it was shut, and this is its probe
	Shuts int64 // Gate.Shuts at the time
}

// ShutSince reports whether the gate is shut, or was shut after the claim.
func (g Gate) ShutSince(p Pass) bool { return g.State == Shut || g.Shuts != p.Shuts }

// The parts of dispatch.waitSQL, sql.Load and sql.Advance that read the gate, by provider_gate_pkey, once
// per statement: which emails may pass, and how often it was shut. They read it without a lock, and
// a missing row means open.
const (
	IsOpenSQL   = `coalesce((SELECT state = 'open' AND held_at IS NULL FROM provider_gate WHERE id = 1), true)`
	ProbeSQL    = `(SELECT probe_id FROM provider_gate WHERE id = 1 AND state = 'shut' AND held_at IS NULL)`
	ShutTurnSQL = `coalesce((SELECT shuts FROM provider_gate WHERE id = 1), 0)`
)

const findGateSQL = `
SELECT state, since, reason, changed_by, attempt_id, shuts, probe_id, probe_at, held_at, held_reason FROM provider_gate WHERE id = 1`

// Gate returns the gate as it is now.
func (s *Store) Gate(ctx context.Context) (Gate, error) {
	var g Gate
	if err := s.db.GetContext(ctx, &g, findGateSQL); err != nil {
		return Gate{}, fmt.Errorf("read gate: %w", pg.Translate(err))
	}
	return g, nil
}

// ErrLocked: another transaction has locked the gate's row. Nothing was written.
var ErrLocked = errors.New("another transaction has locked the row of provider_gate")

// WaitSQL bounds the wait of its statement for the gate's row: the programs hold that row for
// milliseconds, and without the bound a foreign lock would occupy a connection until statement_timeout.
const WaitSQL = `(SELECT set_config('lock_timeout', '200ms', true)) IS NOT NULL`

// WriteError is the error of a statement with WaitSQL.
func WriteError(err error) error {
	if pg.IsLockTimeout(err) {
		return errors.Join(ErrLocked, err)
	}
	return err
}

// Shutting is a request to open the circuit breaker, which stops sending.
type Shutting struct {
	Reason  string    // code
	By      string    // process
	Attempt uuid.UUID // the attempt whose answer shuts it
	Pass    Pass      // of that attempt
}

// shutGateSQL locks the one row if the gate is open and was not shut since the attempt's
// claim; else it locks nothing. The first period of a probe begins now. It may run twice for one
// attempt, with the same result.
const shutGateSQL = `
WITH shut AS (
    UPDATE provider_gate SET state = 'shut', since = now(), reason = $2, changed_by = $3, attempt_id = $1, shuts = shuts + 1,
           probe_id = NULL, probe_at = now()
    WHERE id = 1 AND state = 'open' AND shuts = $4 AND ` + WaitSQL + `
    RETURNING id
)
SELECT EXISTS (SELECT FROM shut) OR EXISTS (SELECT FROM provider_gate WHERE id = 1 AND attempt_id = $1)`

// ShutGate shuts the gate, that is, opens the circuit breaker. shut is false when another attempt did so since this attempt's
// claim: then the answer has no effect. ErrLocked: the gate is unchanged.
func (s *Store) ShutGate(ctx context.Context, w Shutting) (shut bool, err error) {
	err = pg.Write(func(args []any) error {
		return s.db.GetContext(ctx, &shut, shutGateSQL, args...)
	}, w.Attempt, w.Reason, w.By, w.Pass.Shuts)
	if err != nil {
		return false, fmt.Errorf("shut gate: %w", WriteError(err))
	}
	return shut, nil
}

// shutGateByAccountSQL locks the one row if the gate is open. A NULL attempt means that the provider's
// account shut it; probe_at delays the first probe by a pause.
const shutGateByAccountSQL = `
UPDATE provider_gate SET state = 'shut', since = now(), reason = $1, changed_by = $2, attempt_id = NULL, shuts = shuts + 1,
       probe_id = NULL, probe_at = now()
WHERE id = 1 AND state = 'open' AND ` + WaitSQL

// ShutGateByAccount shuts the gate because the provider says that the account may not send,
// before an email is refused. shut is false when it is shut already. ErrLocked: it is unchanged.
func (s *Store) ShutGateByAccount(ctx context.Context, reason, by string) (shut bool, err error) {
	done, err := s.db.Exec(ctx, shutGateByAccountSQL, reason, by)
	if err != nil {
		return false, fmt.Errorf("shut gate by account: %w", WriteError(err))
	}
	n, err := done.RowsAffected()
	return n > 0, pg.Wrap("shut gate by account", err)
}

// Reopened is the state of the gate before it was opened.
type Reopened struct {
	Reason string        `db:"reason"`
	After  time.Duration `db:"-"` // how long it was shut
	Millis int64         `db:"millis"`
}

// openGateSQL locks the one row, if it is shut and was not opened and shut again since.
const openGateSQL = `
UPDATE provider_gate g SET state = 'open', since = now(), reason = NULL, changed_by = $1, probe_id = NULL, probe_at = NULL
FROM (SELECT id, reason, (extract(epoch FROM now() - since) * 1000)::bigint AS millis FROM provider_gate WHERE id = 1) was
WHERE g.id = was.id AND g.state = 'shut' AND g.shuts = $2 AND ` + WaitSQL + `
RETURNING was.reason, was.millis`

// OpenGate opens the gate that was shut when the probe passed. opened is false when it is
// open, or was shut again since. ErrLocked: it is unchanged.
func (s *Store) OpenGate(ctx context.Context, by string, p Pass) (was Reopened, opened bool, err error) {
	return s.openGate(ctx, openGateSQL, by, p.Shuts)
}

func (s *Store) openGate(ctx context.Context, statement string, args ...any) (was Reopened, opened bool, err error) {
	var rows []Reopened
	err = pg.Write(func(args []any) error { return s.db.SelectContext(ctx, &rows, statement, args...) }, args...)
	if err != nil || len(rows) == 0 {
		return Reopened{}, false, pg.Wrap("open gate", WriteError(err))
	}
	rows[0].After = time.Duration(rows[0].Millis) * time.Millisecond
	return rows[0], true, nil
}

// openGateByAccountSQL locks the one row, if no attempt has shut the gate.
const openGateByAccountSQL = `
UPDATE provider_gate g SET state = 'open', since = now(), reason = NULL, changed_by = $1, probe_id = NULL, probe_at = NULL
FROM (SELECT id, reason, (extract(epoch FROM now() - since) * 1000)::bigint AS millis FROM provider_gate WHERE id = 1) was
WHERE g.id = was.id AND g.state = 'shut' AND g.attempt_id IS NULL AND ` + WaitSQL + `
RETURNING was.reason, was.millis`

// OpenGateByAccount reverses ShutGateByAccount. opened is false when the gate is open, or
// was shut by an email's answer. ErrLocked: it is unchanged.
func (s *Store) OpenGateByAccount(ctx context.Context, by string) (was Reopened, opened bool, err error) {
	return s.openGate(ctx, openGateByAccountSQL, by)
}

// An operator's hold, on the one row. The update is a no-op if the hold is already the requested one. It is
// independent of the state: a probe never ends it.
const (
	holdGateSQL = `
UPDATE provider_gate SET held_at = coalesce(held_at, now()), held_reason = $1
WHERE id = $2 AND (held_at IS NULL OR held_reason IS DISTINCT FROM $1)`
	releaseGateSQL = `UPDATE provider_gate SET held_at = NULL, held_reason = NULL WHERE id = $1 AND held_at IS NOT NULL`
)

// HoldGate holds back every email of every company until ReleaseGate, for the operator's
// reason. Holding what is held changes the reason and keeps the time.
func (s *Store) HoldGate(ctx context.Context, by audit.Operator) error {
	_, err := audit.ApplyOne(ctx, s.db, by, audit.Change{Action: "gate.hold"}, holdGateSQL, by.Reason, 1)
	return pg.Wrap("hold gate", err)
}

// ReleaseGate takes HoldGate back.
func (s *Store) ReleaseGate(ctx context.Context, by audit.Operator) error {
	_, err := audit.ApplyOne(ctx, s.db, by, audit.Change{Action: "gate.release"}, releaseGateSQL, 1)
	return pg.Wrap("release gate", err)
}
