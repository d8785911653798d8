package mailing

import (
	"context"
	"fmt"
	"time"

	"github.com/google/uuid"

	"email-gateway/shared/store/internal/pg"
	"email-gateway/shared/uuidv7"
)

// insertJobSQL is the end of a statement whose CTE "next" contains mailings and, as job_id and
// delay_ms, the id and the delay of each mailing's new job. If the company has no lane for jobs,
// the LEFT JOIN makes the insert fail, so that the job is not lost silently.
const insertJobSQL = `
    INSERT INTO email_outbox (id, company_id, lane_id, target, request_id, payload, next_at, expires_at)
    SELECT n.job_id, n.company_id, l.id, 'mailing.process', n.request_id,
           jsonb_build_object('mailingId', n.id, 'storageUrl', n.storage_url, 'generation', n.generation),
           now() + n.delay_ms * interval '1 ms', 'infinity'
    FROM next n LEFT JOIN dispatch_lanes l ON l.company_id = n.company_id AND l.queue = 'mailing.jobs.process' AND l.mailing_id IS NULL
    WHERE n.job_id IS NOT NULL`

// recoverSQL finds mailings along mailings_open and locks them, skipping those that
// another transaction has locked.
//
// It replaces a job without a heartbeat for $2 by raising the generation. A mailing that waits
// for a job, has none in the outbox (looked up along email_outbox_lane_claim, in the company's
// lane of jobs) and has not changed for $3 gets another job of the same generation. The previous
// message may still be in a long queue; whichever of the two jobs runs second has no effect.
const recoverSQL = `
WITH found AS (
    SELECT m.id, m.status FROM mailings m
    WHERE m.status = 'PROCESSING' AND coalesce(m.last_attempt NOT BETWEEN now() - $2 * interval '1 ms' AND now() + $2 * interval '1 ms', true)
       OR m.status IN ('QUEUED', 'PENDING') AND m.updated_at NOT BETWEEN now() - $3 * interval '1 ms' AND now() + $3 * interval '1 ms'
          AND coalesce(m.send_at < now() - $3 * interval '1 ms', true)
          AND NOT EXISTS (
              SELECT FROM dispatch_lanes l JOIN email_outbox o ON o.lane_id = l.id
              WHERE l.company_id = m.company_id AND l.queue = 'mailing.jobs.process' AND l.mailing_id IS NULL
                AND o.status = 'PENDING' AND o.payload ->> 'mailingId' = m.id::text)
    ORDER BY m.id LIMIT cardinality($1::uuid[])
    FOR UPDATE OF m SKIP LOCKED
), moved AS (
    UPDATE mailings m SET status = 'PENDING', last_attempt = NULL, updated_at = now(),
        generation = m.generation + CASE WHEN f.status = 'PROCESSING' THEN 1 ELSE 0 END
    FROM found f WHERE m.id = f.id
    RETURNING m.*, f.status = 'PROCESSING' AS stale
), next AS (
    SELECT m.*, ($1::uuid[])[row_number() OVER (ORDER BY m.id)] AS job_id, 0 AS delay_ms FROM moved m
), job AS (` + insertJobSQL + `
)
SELECT id, stale FROM moved ORDER BY id`

// RecoveredMailing is a mailing that was given a new job.
type RecoveredMailing struct {
	ID    uuid.UUID `db:"id"`
	Stale bool      `db:"stale"` // its job wrote no heartbeat; false: the job's message was lost
}

// recoverBatch bounds one call.
const recoverBatch = 100

// RecoverMailings writes a new job for mailings whose job wrote no heartbeat for stale, and for
// those whose job's message is assumed lost because they did not change for lost. more reports
// whether there may be others.
func (s *Store) RecoverMailings(ctx context.Context, stale, lost time.Duration) (recovered []RecoveredMailing, more bool, err error) {
	jobs := make([]uuid.UUID, recoverBatch)
	for i := range jobs {
		jobs[i] = uuidv7.New()
	}
	err = pg.Write(func(args []any) error {
		recovered = nil
		return s.db.SelectContext(ctx, &recovered, recoverSQL, args...)
	}, pg.UUIDArray(jobs), stale.Milliseconds(), lost.Milliseconds())
	if err != nil {
		return nil, false, fmt.Errorf("recover mailings: %w", err)
	}
	return recovered, len(recovered) == recoverBatch, nil
}
