package mailing

import (
	"context"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/lib/pq"

	"email-gateway/shared/store/internal/pg"
	"email-gateway/shared/store/internal/pgtext"
	"email-gateway/shared/store/outbox"
	"email-gateway/shared/store/recipient"
)

// Job is a mailing that a job holds, with the data that the expansion needs. The job holds the
// mailing as long as its generation and the heartbeat that it wrote last are those of the row:
// a job that takes over writes its own heartbeat, and later writes of the first job have no effect.
type Job struct {
	ID         uuid.UUID      `db:"id"`
	CompanyID  uuid.UUID      `db:"company_id"`
	RequestID  string         `db:"request_id"`
	Generation int            `db:"generation"`
	Heartbeat  time.Time      `db:"last_attempt"`
	LaneID     int64          `db:"lane_id"` // of its emails
	Subject    string         `db:"subject"` // a template
	Fields     pq.StringArray `db:"fields"`
	Template   string         `db:"template"`           // the stored template version of Subject; "" = none
	Variables  string         `db:"template_variables"` // JSON: the variables that this version declares
	ReplyTo    string         `db:"reply_to"`
	Tags       pq.StringArray `db:"tags"`
	FirstEntry uuid.UUID      `db:"first_entry"` // uuid.Nil = it has no entries
	LastEntry  uuid.UUID      `db:"last_entry"`
	ExpandedTo uuid.UUID      `db:"expanded_to"` // uuid.Nil = not begun
}

// Lock is whether a job locked its mailing, and if not, why.
type Lock int

const (
	// Locked: the job holds it.
	Locked Lock = iota
	// Unknown: there is no such mailing.
	Unknown
	// Obsolete: a newer job has replaced this one, or mailings with this status are not expanded.
	Obsolete
	// Held: another job holds it, with a recent heartbeat.
	Held
	// Silent: another job holds it, with a heartbeat that is neither recent nor old enough
	// to take the mailing over; or the mailing became free after LockMailing had tried.
	Silent
)

// lockMailingSQL updates one mailing by primary key and waits $4 ms for the lock on its row. If two
// jobs run it at the same time, the second one finds the first one's heartbeat and updates nothing.
const lockMailingSQL = `
WITH locked AS (
    UPDATE mailings SET status = 'PROCESSING', last_attempt = now(), updated_at = now()
    WHERE id = $1 AND generation = $2
      AND (status IN ('QUEUED', 'PENDING') OR status = 'PROCESSING'
           AND coalesce(last_attempt NOT BETWEEN now() - $3 * interval '1 ms' AND now() + $3 * interval '1 ms', true))
      AND (SELECT set_config('lock_timeout', $4, true)) IS NOT NULL
    RETURNING *
)
SELECT m.id, m.company_id, m.request_id, m.generation, m.last_attempt, l.id AS lane_id, m.subject, m.fields,
       coalesce(m.template, '') AS template, coalesce(m.template_variables, '') AS template_variables,
       coalesce(m.reply_to, '') AS reply_to, m.tags, m.first_entry, m.last_entry, m.expanded_to
FROM locked m
LEFT JOIN dispatch_lanes l ON l.company_id = m.company_id AND l.queue = 'email:send:low' AND l.mailing_id = m.id`

// whyNotLockedSQL reads one row by primary key and locks nothing.
const whyNotLockedSQL = `
SELECT generation = $2 AND status IN ('QUEUED', 'PENDING', 'PROCESSING') AS current,
       coalesce(status = 'PROCESSING' AND last_attempt BETWEEN now() - $3 * interval '1 ms' AND now() + $3 * interval '1 ms', false) AS live
FROM mailings WHERE id = $1`

// LockMailing locks a mailing for the job of this generation, if the mailing waits for a job or the
// last heartbeat of its job is older than stale. It returns Held if another job wrote a heartbeat
// less than live ago. The Job is valid only with Locked.
//
// The error is recipient.ErrLocked if another transaction holds the mailing's row for pg.GroupWait: the
// worker expands one mailing at a time, so every wait here delays all other mailings.
func (s *Store) LockMailing(
	ctx context.Context, id uuid.UUID, generation int, stale, live time.Duration,
) (Job, Lock, error) {
	var jobs []Job
	err := pg.Write(func(args []any) error {
		jobs = nil
		return s.db.SelectContext(ctx, &jobs, lockMailingSQL, args...)
	}, id, generation, stale.Milliseconds(), pg.LockTimeout(pg.GroupWait))
	switch {
	case pg.IsLockTimeout(err):
		return Job{}, 0, fmt.Errorf("lock mailing: %w: %w", recipient.ErrLocked, err)
	case err != nil:
		return Job{}, 0, fmt.Errorf("lock mailing: %w", err)
	case len(jobs) == 1:
		return jobs[0], Locked, nil
	}
	var why []struct {
		Current bool `db:"current"`
		Live    bool `db:"live"`
	}
	if err := s.db.SelectContext(ctx, &why, whyNotLockedSQL, id, generation, live.Milliseconds()); err != nil {
		return Job{}, 0, fmt.Errorf("look up mailing: %w", pg.Translate(err))
	}
	switch {
	case len(why) == 0:
		return Job{}, Unknown, nil
	case !why[0].Current:
		return Job{}, Obsolete, nil
	case why[0].Live:
		return Job{}, Held, nil
	}
	return Job{}, Silent, nil
}

// heldSQL is the condition of every write of a job: it still holds the mailing. The parameters are $1 to $3.
const heldSQL = `id = $1 AND status = 'PROCESSING' AND generation = $2 AND last_attempt = $3`

// holdMailingSQL locks the mailing's row by primary key and waits $4 ms for the lock.
const holdMailingSQL = `
UPDATE mailings SET last_attempt = now(), updated_at = now()
WHERE ` + heldSQL + ` AND (SELECT set_config('lock_timeout', $4, true)) IS NOT NULL
RETURNING last_attempt`

// HoldMailing writes a heartbeat. It returns false if the job no longer holds the mailing. The error is
// recipient.ErrLocked if another transaction holds the mailing's row for outbox.LockWait.
func (s *Store) HoldMailing(ctx context.Context, job *Job) (bool, error) {
	var beat []time.Time
	err := pg.Write(func(args []any) error {
		beat = nil
		return s.db.SelectContext(ctx, &beat, holdMailingSQL, args...)
	}, job.ID, job.Generation, job.Heartbeat, pg.LockTimeout(outbox.LockWait))
	switch {
	case pg.IsLockTimeout(err):
		return false, fmt.Errorf("hold mailing: %w: %w", recipient.ErrLocked, err)
	case err != nil:
		return false, fmt.Errorf("hold mailing: %w", err)
	}
	if len(beat) == 1 {
		job.Heartbeat = beat[0]
	}
	return len(beat) == 1, nil
}

// FailedJob describes a job that failed.
type FailedJob struct {
	Reason  string // the reason code of the dead letter
	Detail  string // for the tenant and for operators; contains nothing that must not be logged
	TaskID  string // the job's outbox id
	Payload []byte // the job, any bytes
	// Last: this was the last attempt. The mailing becomes FAILED, with a dead letter.
	Last bool
}

// failJobSQL locks the mailing's row by primary key and waits $10 ms for each lock. It clears
// counted_at of a mailing that becomes FAILED, so that it is counted once more; after that only marks announce changes, as of a
// PAUSED one. It closes the mailing's lane (by the unique index of dispatch_lanes), so that nothing of a FAILED mailing is sent
// until ResumeMailing opens the lane. Without an open dead letter, nothing can: see CancelDiscarded.
const failJobSQL = `
WITH failed AS (
    UPDATE mailings SET status = CASE WHEN $4 THEN 'FAILED' ELSE 'PENDING' END,
        attempts = attempts + 1, error_message = $5, last_attempt = NULL, updated_at = now(),
        counted_at = CASE WHEN NOT $4 THEN counted_at END
    WHERE ` + heldSQL + ` AND (SELECT set_config('lock_timeout', $10, true)) IS NOT NULL
    RETURNING *
), dead AS (
    INSERT INTO dead_letters (id, company_id, mailing_id, outbox_id, target, reason, attempts, last_error, payload)
    SELECT $6, company_id, id, $7, 'mailing.process', $8, attempts, error_message, $9 FROM failed WHERE $4
), closed AS (
    UPDATE dispatch_lanes l SET paused_at = coalesce(l.paused_at, now())
    FROM failed f WHERE $4 AND l.company_id = f.company_id AND l.queue = 'email:send:low' AND l.mailing_id = f.id
)
SELECT id FROM failed`

// FailJob releases a mailing whose job returned an error. It returns false and changes nothing if the
// job no longer holds the mailing. The error is recipient.ErrLocked if another transaction holds the
// mailing's row for outbox.LockWait.
func (s *Store) FailJob(ctx context.Context, job *Job, f FailedJob) (bool, error) {
	var taskID *uuid.UUID
	if id, err := uuid.Parse(f.TaskID); err == nil {
		taskID = &id
	}
	var failed []uuid.UUID
	err := pg.Write(func(args []any) error {
		failed = nil
		return s.db.SelectContext(ctx, &failed, failJobSQL, args...)
	}, job.ID, job.Generation, job.Heartbeat, f.Last, pgtext.WithoutNUL(f.Detail), uuid.New(), taskID, f.Reason, pgtext.JSON(f.Payload), pg.LockTimeout(outbox.LockWait))
	switch {
	case pg.IsLockTimeout(err):
		return false, fmt.Errorf("fail mailing job: %w: %w", recipient.ErrLocked, err)
	case err != nil:
		return false, fmt.Errorf("fail mailing job: %w", err)
	}
	return len(failed) == 1, nil
}
