-- Generated from named_lanes.sql.tmpl and Go's description of the parameters by go generate: do not edit.
--
-- Finds the first row, and the first row that is or becomes due, of each of the lanes that are open, both along
-- email_outbox_lane_claim. It locks nothing. A result row without a lane carries only the state of the circuit breaker.
--
-- Parameters; from $2 on, each array has one element per row:
--   $1   count                bigint
--   $2   id                   bigint[]
--   $3   since                timestamptz[]
--   $4   since_id             uuid[]
--
-- EXPLAIN EXECUTE named_lanes (0, '{}', '{}', '{}');
WITH
-- lane are the lanes, each with the position since, since_id from which it is read.
lane AS (
    SELECT named.id, named.since, named.since_id
    FROM (SELECT * FROM unnest($2::bigint[], $3::timestamptz[], $4::uuid[]) AS t(id, since, since_id) LIMIT $1 /* count */) named
)
SELECT breaker.closed, found.* FROM (SELECT coalesce((SELECT NOT is_open AND held_at IS NULL FROM provider_gate WHERE id = 1), true) AS closed) breaker
LEFT JOIN (
    SELECT l.id, l.company_id, l.queue, least(earliest.next_at, now() - interval '5 s') AS since,
           CASE WHEN earliest.next_at <= now() - interval '5 s' THEN earliest.id ELSE '00000000-0000-0000-0000-000000000000' END AS since_id,
           CASE WHEN due.next_at IS NULL AND earliest.late_at IS NULL THEN 'infinity'
                ELSE extract(epoch FROM greatest(least(due.next_at, earliest.late_at), l.parked_until) - now())::float8 END AS wait
    FROM lane
    JOIN dispatch_lanes l ON l.id = lane.id AND CASE WHEN lane.id IS NOT NULL THEN l.paused_at IS NULL AND l.held_at IS NULL END
    JOIN companies c ON c.id = l.company_id
        AND CASE WHEN l.id IS NOT NULL THEN c.suspended_at IS NULL AND (c.mailings_paused_at IS NULL OR l.mailing_id IS NULL) END
    LEFT JOIN LATERAL (
        SELECT o.next_at, o.id, CASE WHEN o.status = 'RETRY_SCHEDULED' AND o.enqueued_at IS NOT NULL AND o.next_at > now() - interval '5 s'
                               THEN o.next_at + interval '5 s' END AS late_at
        FROM email_outbox o
        WHERE o.lane_id = l.id AND o.status IN ('PENDING', 'RETRY_SCHEDULED') AND (o.next_at, o.id) >= (lane.since, lane.since_id)
        ORDER BY o.next_at, o.id LIMIT 1
    ) earliest ON true
    LEFT JOIN LATERAL (
        SELECT o.next_at FROM email_outbox o
        WHERE earliest.id IS NOT NULL
          AND o.lane_id = l.id AND o.status IN ('PENDING', 'RETRY_SCHEDULED') AND (o.next_at, o.id) >= (earliest.next_at, earliest.id)
          AND (o.status = 'PENDING' OR o.enqueued_at IS NULL OR o.next_at <= now() - interval '5 s')
        ORDER BY o.next_at, o.id LIMIT 1
    ) due ON true
) found ON true
