package mailing

import (
	"context"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/lib/pq"

	"email-gateway/shared/store/internal/pg"
	"email-gateway/shared/store/outbox"
	"email-gateway/shared/store/recipient"
)

// Job is a mailing that a job has locked: what expanding it takes, and the
// job's hold on it. The hold is the generation together with the heartbeat that the
// job wrote last: another job that takes over writes its own, and from then on
// nothing of the first one applies.
type Job struct {
	ID         uuid.UUID      `db:"id"`
	CompanyID  uuid.UUID      `db:"company_id"`
	RequestID  string         `db:"request_id"`
	Generation int            `db:"generation"`
	Heartbeat  time.Time      `db:"last_attempt"`
	LaneID     int64          `db:"lane_id"` // of its emails
	Subject    string         `db:"subject"` // a template
	Fields     pq.StringArray `db:"fields"`
	Template   string         `db:"template"`           // the version of a stored template that Subject is of; "" = none
	Variables  string         `db:"template_variables"` // JSON: what that version declares
	ReplyTo    string         `db:"reply_to"`
	Tags       pq.StringArray `db:"tags"`
	FirstEntry uuid.UUID      `db:"first_entry"` // uuid.Nil = it has no entries
	LastEntry  uuid.UUID      `db:"last_entry"`
	ExpandedTo uuid.UUID      `db:"expanded_to"` // uuid.Nil = not begun
}

// Lock is whether a job acquired its mailing, and if not, why.
type Lock int

const (
	// Locked: the job holds it.
	Locked Lock = iota
	// Unknown: there is no such mailing.
	Unknown
	// Obsolete: a newer job has taken this one's place, or the mailing's status
	// is none in which it is expanded.
	Obsolete
	// Held: another job is at it and was heard of just now.
	Held
	// Silent: another job holds it and has not been heard of for a while, but not
	// for long enough to take its place; or the mailing has become free this moment.
	Silent
)

// lockMailingSQL takes one mailing by primary key and waits $4 ms for its row's lock. Of two
// jobs that run it at the same time the second one finds a heartbeat that is new.
const lockMailingSQL = `
WITH locked AS (
    UPDATE mailings SET status = 'PROCESSING', last_attempt = now(), updated_at = now()
    WHERE id = $1 AND generation = $2
      AND (status IN ('QUEUED', 'PENDING') OR status = 'PROCESSING' AND coalesce(last_attempt < now() - $3 * interval '1 ms', true))
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
       coalesce(status = 'PROCESSING' AND last_attempt > now() - $3 * interval '1 ms', false) AS live
FROM mailings WHERE id = $1`

// LockMailing gets hold of a mailing for the job of this generation: one that waits
// for a job, or one whose holder has been silent for stale. A holder heard of less
// than live ago is Held. The job is meaningful with Locked only.
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

// heldSQL is the guard of everything a job writes: its hold, as $1 to $3.
const heldSQL = `id = $1 AND status = 'PROCESSING' AND generation = $2 AND last_attempt = $3`

// holdMailingSQL locks the mailing's row by primary key and waits $4 ms for the lock.
const holdMailingSQL = `
UPDATE mailings SET last_attempt = now(), updated_at = now()
WHERE ` + heldSQL + ` AND (SELECT set_config('lock_timeout', $4, true)) IS NOT NULL
RETURNING last_attempt`

// HoldMailing writes a heartbeat. false: the hold is lost. The error is recipient.ErrLocked if another
// transaction holds the mailing's row for outbox.LockWait.
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

// FailedJob is a job that did not come to its end.
type FailedJob struct {
	Reason  string // a code, of the dead letter
	Detail  string // for the tenant and for operators; holds nothing that a log may not
	TaskID  string // the job's outbox id
	Payload []byte // the job, any bytes
	// Last: there will be no other try. The mailing becomes FAILED, with a dead letter.
	Last bool
}

// failJobSQL locks the mailing's row by primary key and waits $10 ms for the lock. A mailing
// that failed is counted once more, and after that as long as its emails are not final.
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
)
SELECT id FROM failed`

// FailJob releases a mailing whose job returned an error. It returns false if the lock was lost
// before, so that the mailing's state belongs to another job. The error is recipient.ErrLocked if another transaction
// holds the mailing's row for outbox.LockWait.
func (s *Store) FailJob(ctx context.Context, job *Job, f FailedJob) (bool, error) {
	var taskID *uuid.UUID
	if id, err := uuid.Parse(f.TaskID); err == nil {
		taskID = &id
	}
	var failed []uuid.UUID
	err := pg.Write(func(args []any) error {
		failed = nil
		return s.db.SelectContext(ctx, &failed, failJobSQL, args...)
	}, job.ID, job.Generation, job.Heartbeat, f.Last, pg.WithoutNUL(f.Detail), uuid.New(), taskID, f.Reason, pg.JSON(f.Payload), pg.LockTimeout(outbox.LockWait))
	switch {
	case pg.IsLockTimeout(err):
		return false, fmt.Errorf("fail mailing job: %w: %w", recipient.ErrLocked, err)
	case err != nil:
		return false, fmt.Errorf("fail mailing job: %w", err)
	}
	return len(failed) == 1, nil
}
