-- Generated from take_due.sql.tmpl and Go's description of the parameters by go generate: do not edit.
--
-- Takes due emails of lanes: marks them as ENQUEUED and returns them. The same commit records the batch in place of the
-- slot's last one.
--
-- Parameters; from $4 on, each array has one element per row:
--   $1   count                bigint
--   $2   slot_id              uuid
--   $3   published_at         timestamptz
--   $4   id                   bigint[]
--   $5   since                timestamptz[]
--   $6   since_id             uuid[]
--   $7   row_limit            bigint[]
--
-- EXPLAIN EXECUTE take_due (0, '00000000-0000-0000-0000-000000000000', now(), '{}', '{}', '{}', '{}');
WITH
-- due finds the due rows of each lane (along email_outbox_lane_claim), from the lane's position since, since_id on and at
-- most its row_limit, and locks them. It skips rows that another transaction has locked. had_task: a delayed task should
-- have run the row.
due AS MATERIALIZED (
    SELECT due.* FROM (
        SELECT * FROM unnest($4::bigint[], $5::timestamptz[], $6::uuid[], $7::bigint[]) AS t(id, since, since_id, row_limit) LIMIT $1 /* count */
    ) lane
    CROSS JOIN LATERAL (
        SELECT o.id, o.next_at, o.status = 'RETRY_SCHEDULED' AND o.enqueued_at IS NOT NULL
                   AND NOT EXISTS (SELECT FROM dropped_tasks d WHERE d.enqueued_at = o.enqueued_at AND d.outbox_id = o.id) AS had_task FROM email_outbox o
        WHERE o.lane_id = lane.id AND (o.next_at, o.id) >= (lane.since, lane.since_id) AND o.status IN ('PENDING', 'RETRY_SCHEDULED') AND o.next_at <= now()
          AND (o.status = 'PENDING' OR o.enqueued_at IS NULL OR o.next_at <= now() - interval '5 s')
        ORDER BY o.next_at, o.id LIMIT lane.row_limit
        FOR UPDATE SKIP LOCKED
    ) due
),

-- batch records the batch of the slot.
batch AS (
    INSERT INTO dispatch_batches (slot, taken_at) SELECT $2 /* slot_id */, now() WHERE EXISTS (SELECT FROM due)
),

-- published deletes the slot's last batch (by primary key), whose tasks have all been published or released.
published AS (
    DELETE FROM dispatch_batches WHERE slot = $2 /* slot_id */ AND taken_at = $3 /* published_at */
)

-- The rows are written in the order of the primary key. The CASE keeps the planner from beginning with email_outbox after
-- statistics of a few rows.
UPDATE email_outbox o SET status = 'ENQUEUED', enqueued_at = now()
FROM (SELECT id, had_task FROM due ORDER BY id) due
WHERE o.id = due.id AND CASE WHEN due.id IS NOT NULL THEN o.target = 'email:send' END
RETURNING o.id, o.lane_id, o.payload, o.attempts, o.throttles, o.next_at, o.enqueued_at, due.had_task
