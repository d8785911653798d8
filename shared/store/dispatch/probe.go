package dispatch

import (
	"context"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/lib/pq"

	"email-gateway/shared/store/breaker"
	"email-gateway/shared/store/internal/pg"
)

// Probe is the email that may pass an open circuit breaker.
type Probe struct {
	ID    uuid.UUID `db:"id"`
	Queue string    `db:"queue"`
}

// pickProbeSQL finds, in each open lane, the email that has been due for longest. Of these it chooses the oldest one of the
// next company by id after the company of the last probe, cyclically: many failing emails of one company must not keep the
// emails of others from being probes. Without a last probe, the turn is that of the next company after the one whose email opened
// the breaker; if that is unknown too, it chooses the oldest of all. If the last probe still waits on its queue, workers do not
// serve that queue, because an operator has paused it in the dashboard or they cannot reach its node: the next one is on the
// next queue by name, cyclically, that has due emails.
//
// It uses the jumps of everyLaneSQL and reads each lane along email_outbox_lane_claim, up to the first candidate and at most the
// first 100 due emails: any number of the others may be past their deadline.
//
// It first locks the row of the circuit breaker, and finds nothing if another session has locked it: of several
// concurrent calls only one reads the lanes. In each lane it skips rows that another session has locked, since the
// worker could not claim them, and locks the row that it finds (by email_outbox_pkey) until the statement ends. The
// condition for due rows is that of TakeProbe.
const (
	pickProbeSQL = pickDueSQL + pickFirstSQL

	// pickSafeProbeSQL chooses no email with delivery at_most_once.
	pickSafeProbeSQL = pickDueSQL + ` AND early.delivery <> 'at_most_once'` + pickFirstSQL

	pickDueSQL = pickProbeLanesSQL + `
        SELECT o.id, o.next_at FROM (
            SELECT o.id, o.next_at, o.delivery FROM email_outbox o
            WHERE o.lane_id = l.id AND o.target = 'email:send' AND ` + dueSQL + `
            ORDER BY o.next_at, o.id LIMIT 100
        ) early JOIN email_outbox o ON o.id = early.id
        WHERE o.expires_at > now() AND ` + dueSQL
	pickFirstSQL = `
        ORDER BY early.next_at, early.id LIMIT 1 FOR UPDATE OF o SKIP LOCKED` + pickProbeTurnSQL

	// pickEarlyProbeSQL chooses a retry that is not due yet, by the same index, among the first 100 waiting emails of a lane.
	// It chooses no email that the provider may have accepted, since the delay of its retry protects the recipient from
	// duplicates, and none with delivery at_most_once. A delayed task of the email is replaced.
	pickEarlyProbeSQL = pickProbeLanesSQL + `
        SELECT o.id, early.next_at FROM (
            SELECT o.id, o.next_at FROM email_outbox o
            WHERE o.lane_id = l.id AND o.target = 'email:send' AND o.status IN ('PENDING', 'RETRY_SCHEDULED')
            ORDER BY o.next_at, o.id LIMIT 100
        ) early JOIN email_outbox o ON o.id = early.id
        WHERE o.status = 'RETRY_SCHEDULED' AND NOT o.outcome_unknown AND o.delivery <> 'at_most_once' AND o.expires_at > now()
        ORDER BY early.next_at, early.id LIMIT 1 FOR UPDATE OF o SKIP LOCKED` + pickProbeOrderSQL + `, early AS (
    UPDATE email_outbox o SET next_at = now(), enqueued_at = NULL FROM chosen WHERE o.id = chosen.id
)` + pickProbeSetSQL

	// probeDueSQL is true when the last probe was chosen at least $2 ms ago. A time further ahead than that is of a server whose
	// clock was ahead: without the upper bound no email would be sent until this server's clock reaches it. Times that are less
	// ahead may be those of a concurrent transaction.
	probeDueSQL = `coalesce(probe_at NOT BETWEEN now() - $2 * interval '1 ms' AND now() + $2 * interval '1 ms', true)`

	pickProbeLanesSQL = `
WITH RECURSIVE breaker AS MATERIALIZED (
    SELECT id, probe_id, opener_company FROM provider_gate
    WHERE id = 1 AND is_open AND held_at IS NULL AND ` + probeDueSQL + `
    FOR UPDATE SKIP LOCKED
), last AS MATERIALIZED (
    SELECT coalesce(o.company_id, b.opener_company) AS company_id, CASE WHEN o.status = 'ENQUEUED' THEN l.queue END AS unserved
    FROM breaker b
    LEFT JOIN email_outbox o ON o.id = (SELECT probe_id FROM breaker)
    LEFT JOIN dispatch_lanes l ON l.id = o.lane_id
), lane AS (
    (SELECT lane_id FROM email_outbox
     WHERE status IN ('PENDING', 'RETRY_SCHEDULED') AND lane_id IS NOT NULL AND (SELECT id FROM breaker) = 1
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
	pickProbeTurnSQL  = pickProbeOrderSQL + pickProbeSetSQL
	pickProbeOrderSQL = `
    ) due
    LEFT JOIN last ON true
    WHERE l.queue = ANY ($1::text[]) AND l.paused_at IS NULL AND l.held_at IS NULL
      AND coalesce(l.parked_until <= now(), true) AND c.suspended_at IS NULL AND (c.mailings_paused_at IS NULL OR l.mailing_id IS NULL)
    ORDER BY l.queue <= last.unserved, CASE WHEN last.unserved IS NOT NULL THEN l.queue END,
        c.id <= last.company_id, CASE WHEN last.company_id IS NOT NULL THEN c.id END, due.next_at, due.id LIMIT 1
)`
	pickProbeSetSQL = `
UPDATE provider_gate g SET probe_id = chosen.id, probe_at = now()
FROM chosen
WHERE g.id = 1 AND g.is_open AND g.held_at IS NULL AND ` + probeDueSQL + `
RETURNING chosen.id, chosen.queue`
)

// PickProbe chooses the next probe on one of the queues if the circuit breaker is open, the last probe was chosen at
// least pause ago, and an email is due that is not locked, among the first 100 due ones of its lane. Companies take
// turns. An email with delivery at_most_once is chosen only if no lane has another kind among these: if its answer is
// lost, it fails.
//
// If no email is due and early is set, PickProbe chooses the earliest retry and makes it due: an outage may end while all
// emails wait for their next try. With early it reads up to 100 emails of each lane even if none is a candidate. While the
// breaker is closed or held, or another transaction has locked its row, PickProbe reads only that row.
func (s *Store) PickProbe(ctx context.Context, queues []string, pause time.Duration, early bool) (picked Probe, found bool, err error) {
	g, err := s.breakers.Breaker(ctx)
	if err != nil || !g.IsOpen || g.HeldAt != nil {
		return Probe{}, false, err
	}
	statements := []string{pickSafeProbeSQL, pickProbeSQL}
	if early {
		statements = append(statements, pickEarlyProbeSQL)
	}
	var rows []Probe
	for _, statement := range statements {
		err = pg.Write(func(args []any) error { return s.db.SelectContext(ctx, &rows, statement, args...) },
			pq.Array(queues), pause.Milliseconds())
		if err != nil || len(rows) > 0 {
			break
		}
	}
	if err != nil || len(rows) == 0 {
		return Probe{}, false, pg.Wrap("pick probe", err)
	}
	return rows[0], true, nil
}

// skipProbeSQL allows another probe immediately. It updates the one row.
const skipProbeSQL = `UPDATE provider_gate SET probe_at = NULL WHERE id = 1 AND is_open AND probe_id = $1 AND ` + breaker.WaitSQL

// SkipProbe records that the probe did not reach the provider. After breaker.ErrLocked the next probe follows only after the
// pause.
func (s *Store) SkipProbe(ctx context.Context, id uuid.UUID) error {
	if _, err := s.db.Exec(ctx, skipProbeSQL, id); err != nil {
		return fmt.Errorf("skip probe: %w", breaker.WriteError(err))
	}
	return nil
}
