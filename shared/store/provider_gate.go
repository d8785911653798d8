package store

import (
	"context"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/lib/pq"

	"email-gateway/shared/email"
)

// GateState is whether emails pass to the provider.
type GateState string

// The states of the provider's gate.
const (
	GateOpen GateState = "open"
	GateShut GateState = "shut" // nothing passes but a probe
)

// Gate is the brake before the provider that all workers share.
type Gate struct {
	State GateState `db:"state" json:"state"`
	Since time.Time `db:"since" json:"since"` // of the state
	// Reason is the code of the answer that shut it; nil while it is open.
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

// GatePass is how a claim met the gate.
type GatePass struct {
	Probe bool  // it was shut, and this is its probe
	Shuts int64 // Gate.Shuts at the time
}

// ShutSince says whether the gate is shut, or was after the claim.
func (g Gate) ShutSince(p GatePass) bool { return g.State == GateShut || g.Shuts != p.Shuts }

// What liveLanesSQL, loadSQL and advanceSQL ask of the gate, by provider_gate_pkey, once
// per statement: who may pass, and how often it was shut. They read it without a lock, and
// a gate that is not there is open.
const (
	gateIsOpen   = `coalesce((SELECT state = 'open' AND held_at IS NULL FROM provider_gate WHERE id = 1), true)`
	gateProbe    = `(SELECT probe_id FROM provider_gate WHERE id = 1 AND state = 'shut' AND held_at IS NULL)`
	gateShutTurn = `coalesce((SELECT shuts FROM provider_gate WHERE id = 1), 0)`
)

const findGateSQL = `
SELECT state, since, reason, changed_by, attempt_id, shuts, probe_id, probe_at, held_at, held_reason FROM provider_gate WHERE id = 1`

// Gate returns the gate as it is now.
func (s *Store) Gate(ctx context.Context) (Gate, error) {
	var g Gate
	if err := s.db.GetContext(ctx, &g, findGateSQL); err != nil {
		return Gate{}, fmt.Errorf("read gate: %w", translate(err))
	}
	return g, nil
}

// Shutting is a request to open the circuit breaker, which stops sending.
type Shutting struct {
	Reason  string    // code
	By      string    // process
	Attempt uuid.UUID // whose answer asks for it
	Pass    GatePass  // of that attempt
}

// shutGateSQL locks the one row if the gate is open and was not shut since the attempt's
// claim; else it locks nothing. The first period of a probe begins now. Run twice for one
// attempt, it says twice that this attempt shut it.
const shutGateSQL = `
WITH shut AS (
    UPDATE provider_gate SET state = 'shut', since = now(), reason = $2, changed_by = $3, attempt_id = $1, shuts = shuts + 1,
           probe_id = NULL, probe_at = now()
    WHERE id = 1 AND state = 'open' AND shuts = $4
    RETURNING id
)
SELECT EXISTS (SELECT FROM shut) OR EXISTS (SELECT FROM provider_gate WHERE id = 1 AND attempt_id = $1)`

// ShutGate shuts the gate. shut is false when another attempt did so since this attempt's
// claim: then the answer has no effect.
func (s *Store) ShutGate(ctx context.Context, w Shutting) (shut bool, err error) {
	err = write(func(args []any) error {
		return s.db.GetContext(ctx, &shut, shutGateSQL, args...)
	}, w.Attempt, w.Reason, w.By, w.Pass.Shuts)
	if err != nil {
		return false, fmt.Errorf("shut gate: %w", err)
	}
	return shut, nil
}

// shutGateByAccountSQL locks the one row if the gate is open. That there is no attempt says
// who shut it; probe_at lets a pause pass before the first probe.
const shutGateByAccountSQL = `
UPDATE provider_gate SET state = 'shut', since = now(), reason = $1, changed_by = $2, attempt_id = NULL, shuts = shuts + 1,
       probe_id = NULL, probe_at = now()
WHERE id = 1 AND state = 'open'`

// ShutGateByAccount shuts the gate because the provider says that the account may not send,
// before any email meets that. shut is false when it is shut already.
func (s *Store) ShutGateByAccount(ctx context.Context, reason, by string) (shut bool, err error) {
	done, err := s.exec(ctx, shutGateByAccountSQL, reason, by)
	if err != nil {
		return false, fmt.Errorf("shut gate by account: %w", err)
	}
	n, err := done.RowsAffected()
	return n > 0, wrap("shut gate by account", err)
}

// Reopened is what the gate was before it was opened.
type Reopened struct {
	Reason string        `db:"reason"`
	After  time.Duration `db:"-"` // how long it was shut
	Millis int64         `db:"millis"`
}

// openGateSQL locks the one row, if it is shut and was not opened and shut again since.
const openGateSQL = `
UPDATE provider_gate g SET state = 'open', since = now(), reason = NULL, changed_by = $1, probe_id = NULL, probe_at = NULL
FROM (SELECT id, reason, (extract(epoch FROM now() - since) * 1000)::bigint AS millis FROM provider_gate WHERE id = 1) was
WHERE g.id = was.id AND g.state = 'shut' AND g.shuts = $2
RETURNING was.reason, was.millis`

// OpenGate opens the gate that was shut when the probe passed. opened is false when it is
// open, or was shut anew since.
func (s *Store) OpenGate(ctx context.Context, by string, p GatePass) (was Reopened, opened bool, err error) {
	return s.openGate(ctx, openGateSQL, by, p.Shuts)
}

func (s *Store) openGate(ctx context.Context, statement string, args ...any) (was Reopened, opened bool, err error) {
	var rows []Reopened
	err = write(func(args []any) error { return s.db.SelectContext(ctx, &rows, statement, args...) }, args...)
	if err != nil || len(rows) == 0 {
		return Reopened{}, false, wrap("open gate", err)
	}
	rows[0].After = time.Duration(rows[0].Millis) * time.Millisecond
	return rows[0], true, nil
}

// openGateByAccountSQL locks the one row, if no attempt has shut it.
const openGateByAccountSQL = `
UPDATE provider_gate g SET state = 'open', since = now(), reason = NULL, changed_by = $1, probe_id = NULL, probe_at = NULL
FROM (SELECT id, reason, (extract(epoch FROM now() - since) * 1000)::bigint AS millis FROM provider_gate WHERE id = 1) was
WHERE g.id = was.id AND g.state = 'shut' AND g.attempt_id IS NULL
RETURNING was.reason, was.millis`

// OpenGateByAccount takes ShutGateByAccount back. opened is false when the gate is open, or
// was shut by an email's answer.
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
func (s *Store) HoldGate(ctx context.Context, by Operator) error {
	_, err := s.auditedOne(ctx, by, act{action: "gate.hold"}, holdGateSQL, by.Reason, 1)
	return wrap("hold gate", err)
}

// ReleaseGate takes HoldGate back.
func (s *Store) ReleaseGate(ctx context.Context, by Operator) error {
	_, err := s.auditedOne(ctx, by, act{action: "gate.release"}, releaseGateSQL, 1)
	return wrap("release gate", err)
}

// Probe is the email that may pass a shut gate.
type Probe struct {
	ID    uuid.UUID `db:"id"`
	Queue string    `db:"queue"`
}

// pickProbeSQL chooses, in each open lane, the email that has been due for longest, and of
// those the oldest one of the next company by id after that of the last probe, cyclically:
// many bad emails of one company do not keep the emails of the others from probing. If the
// last probe is unknown, it chooses the oldest of all. Its cost is the number of lanes, by the
// jumps of liveLanesSQL and one probe of email_outbox_lane_claim for each lane. It locks
// the gate's one row first: of several that pick at once one finds the condition still
// true, and only that one looks at the lanes. In each lane it passes over rows that
// another session has locked, since the worker could not claim them, and locks the one it
// finds until the statement ends. What is due is what TakeProbe takes.
const (
	pickProbeSQL = pickProbeLanesSQL + `
        SELECT o.id, o.next_at FROM email_outbox o
        WHERE o.lane_id = l.id AND o.target = 'email:send' AND ` + dueSQL + `
        ORDER BY o.next_at, o.id LIMIT 1 FOR UPDATE SKIP LOCKED` + pickProbeTurnSQL

	// pickSafeProbeSQL takes no email with delivery at_most_once. It reads at most the first
	// 100 due emails of a lane by the same index, and locks one of them by email_outbox_pkey.
	pickSafeProbeSQL = pickProbeLanesSQL + `
        SELECT o.id, o.next_at FROM (
            SELECT o.id, o.next_at, o.delivery FROM email_outbox o
            WHERE o.lane_id = l.id AND o.target = 'email:send' AND ` + dueSQL + `
            ORDER BY o.next_at, o.id LIMIT 100
        ) early JOIN email_outbox o ON o.id = early.id
        WHERE early.delivery <> 'at_most_once' AND ` + dueSQL + `
        ORDER BY early.next_at, early.id LIMIT 1 FOR UPDATE OF o SKIP LOCKED` + pickProbeTurnSQL

	pickProbeLanesSQL = `
WITH RECURSIVE gate AS MATERIALIZED (
    SELECT id, probe_id FROM provider_gate
    WHERE id = 1 AND state = 'shut' AND held_at IS NULL AND coalesce(probe_at <= now() - $2 * interval '1 ms', true)
    FOR UPDATE
), last AS MATERIALIZED (
    SELECT company_id FROM email_outbox WHERE id = (SELECT probe_id FROM gate)
), lane AS (
    (SELECT lane_id FROM email_outbox
     WHERE status IN ('PENDING', 'RETRY_SCHEDULED') AND lane_id IS NOT NULL AND (SELECT id FROM gate) = 1
     ORDER BY lane_id LIMIT 1)
    UNION ALL
    SELECT (SELECT o.lane_id FROM email_outbox o
            WHERE o.status IN ('PENDING', 'RETRY_SCHEDULED') AND o.lane_id > lane.lane_id
            ORDER BY o.lane_id LIMIT 1)
    FROM lane WHERE lane.lane_id IS NOT NULL
), chosen AS (
    SELECT due.id, l.queue FROM lane
    JOIN dispatch_lanes l ON l.id = lane.lane_id
    JOIN companies c ON c.id = l.company_id
    CROSS JOIN LATERAL (`
	pickProbeTurnSQL = `
    ) due
    LEFT JOIN last ON true
    WHERE l.queue = ANY ($1::text[]) AND l.paused_at IS NULL AND l.held_at IS NULL
      AND coalesce(l.parked_until <= now(), true) AND c.suspended_at IS NULL
    ORDER BY c.id <= last.company_id, CASE WHEN last.company_id IS NOT NULL THEN c.id END, due.next_at, due.id LIMIT 1
)
UPDATE provider_gate g SET probe_id = chosen.id, probe_at = now()
FROM chosen
WHERE g.id = 1 AND g.state = 'shut' AND g.held_at IS NULL AND coalesce(g.probe_at <= now() - $2 * interval '1 ms', true)
RETURNING chosen.id, chosen.queue`
)

// PickProbe chooses the next probe, if the gate is shut, the last one was chosen at least
// pause ago, and an email is due that nobody has locked. Companies take turns. An email with
// delivery at_most_once is chosen only if no other is among the first 100 due emails of any
// lane: if its answer is lost, it fails. While the gate is open it reads one row.
func (s *Store) PickProbe(ctx context.Context, pause time.Duration) (picked Probe, found bool, err error) {
	g, err := s.Gate(ctx)
	if err != nil || g.State == GateOpen || g.HeldAt != nil {
		return Probe{}, false, err
	}
	var rows []Probe
	for _, statement := range []string{pickSafeProbeSQL, pickProbeSQL} {
		err = write(func(args []any) error { return s.db.SelectContext(ctx, &rows, statement, args...) },
			pq.Array(email.Queues()), pause.Milliseconds())
		if err != nil || len(rows) > 0 {
			break
		}
	}
	if err != nil || len(rows) == 0 {
		return Probe{}, false, wrap("pick probe", err)
	}
	return rows[0], true, nil
}

// skipProbeSQL makes room, on the one row, for another probe at once.
const skipProbeSQL = `UPDATE provider_gate SET probe_at = NULL WHERE id = 1 AND state = 'shut' AND probe_id = $1`

// SkipProbe says that the probe never came as far as the provider.
func (s *Store) SkipProbe(ctx context.Context, id uuid.UUID) error {
	if _, err := s.exec(ctx, skipProbeSQL, id); err != nil {
		return fmt.Errorf("skip probe: %w", err)
	}
	return nil
}

func wrap(operation string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s: %w", operation, err)
}
