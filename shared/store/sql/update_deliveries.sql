-- Generated from update_deliveries.sql.tmpl and Go's description of the parameters by go generate: do not edit.
--
-- Writes the new state of attempted deliveries of an endpoint, and locks their rows by primary key, in the order of the
-- arrays.
--
-- Parameters; from $3 on, each array has one element per row:
--   $1   endpoint_id          uuid
--   $2   longest_pause_ms     double precision
--   $3   id                   uuid[]
--   $4   scheduled_at         timestamptz[]
--   $5   status               text[]
--   $6   attempts             bigint[]
--   $7   wait_ms              bigint[]
--   $8   pause_ms             bigint[]
--   $9   throttled            bool[]
--   $10  last_status          bigint[]
--   $11  last_error           text[]
--   $12  took_ms              bigint[]
--
-- EXPLAIN EXECUTE update_deliveries ('00000000-0000-0000-0000-000000000000', 0, '{}', '{}', '{}', '{}', '{}', '{}', '{}', '{}', '{}', '{}');
UPDATE webhook_deliveries d SET
    status = t.status, attempts = t.attempts,
    next_at = CASE WHEN t.status = 'RETRYING' THEN greatest(now() + t.pause_ms * interval '1 ms', CASE
        WHEN t.throttled THEN now() + least(greatest((now() - d.created_at) / 4, interval '1 s'), $2 /* longest_pause_ms */ * interval '1 ms')
        ELSE coalesce(t.scheduled_at, now() + t.wait_ms * interval '1 ms') END) END,
    scheduled_at = CASE t.status WHEN 'RETRYING' THEN coalesce(t.scheduled_at, now() + t.wait_ms * interval '1 ms') END,
    last_attempt_at = now(), last_status = nullif(t.last_status, 0), last_error = nullif(t.last_error, ''), last_took_ms = t.took_ms, updated_at = now()
FROM unnest(
    $3::uuid[],        -- id
    $4::timestamptz[], -- scheduled_at
    $5::text[],        -- status
    $6::bigint[],      -- attempts
    $7::bigint[],      -- wait_ms
    $8::bigint[],      -- pause_ms
    $9::bool[],        -- throttled
    $10::bigint[],     -- last_status
    $11::text[],       -- last_error
    $12::bigint[]      -- took_ms
) AS t(id, scheduled_at, status, attempts, wait_ms, pause_ms, throttled, last_status, last_error,
       took_ms)
WHERE d.id = t.id AND d.endpoint_id = $1 /* endpoint_id */
