-- Generated from take_due.sql.tmpl and Go's description of the parameters by go generate: do not edit.
--
-- Leases due bulk jobs of lanes and returns them, each with its next_at before the lease.
--
-- Parameters; from $2 on, each array has one element per row:
--   $1   count                bigint
--   $2   id                   bigint[]
--   $3   since                timestamptz[]
--   $4   since_id             uuid[]
--   $5   row_limit            bigint[]
--
-- EXPLAIN EXECUTE lease_jobs (0, '{}', '{}', '{}', '{}');
WITH
-- due finds the due rows of each lane (along email_outbox_lane_claim), from the lane's position since, since_id on and at
-- most its row_limit, and locks them. It skips rows that another transaction has locked. had_task: a delayed task should
-- have run the row.
due AS MATERIALIZED (
    SELECT due.* FROM (
        SELECT * FROM unnest($2::bigint[], $3::timestamptz[], $4::uuid[], $5::bigint[]) AS t(id, since, since_id, row_limit) LIMIT $1 /* count */
    ) lane
    CROSS JOIN LATERAL (
        SELECT o.id, o.next_at, o.status = 'RETRY_SCHEDULED' AND o.enqueued_at IS NOT NULL
                   AND NOT EXISTS (SELECT FROM dropped_tasks d WHERE d.enqueued_at = o.enqueued_at AND d.outbox_id = o.id) AS had_task FROM email_outbox o
        WHERE o.lane_id = lane.id AND (o.next_at, o.id) >= (lane.since, lane.since_id) AND o.status IN ('PENDING', 'RETRY_SCHEDULED') AND o.next_at <= now()
          AND (o.status = 'PENDING' OR o.enqueued_at IS NULL OR o.next_at <= now() - interval '5 s')
        ORDER BY o.next_at, o.id LIMIT lane.row_limit
        FOR UPDATE SKIP LOCKED
    ) due
)

-- due_at keeps the next_at from before the first lease.
UPDATE email_outbox o SET next_at = now() + interval '8 s', due_at = coalesce(o.due_at, due.next_at), enqueued_at = now()
FROM due WHERE o.id = due.id
RETURNING o.id, o.lane_id, o.payload, o.attempts, o.throttles, due.next_at, o.enqueued_at, false AS had_task
