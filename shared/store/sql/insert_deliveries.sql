-- Generated from insert_deliveries.sql.tmpl and Go's description of the parameters by go generate: do not edit.
--
-- Inserts deliveries of an endpoint that have no row, and locks their rows. A replay may repeat an event that has a row: the
-- statement then updates that row unless it is open.
--
-- Parameters; from $3 on, each array has one element per row:
--   $1   endpoint_id          uuid
--   $2   company_id           uuid
--   $3   id                   uuid[]
--   $4   event_id             text[]
--   $5   type                 text[]
--   $6   position             bigint[]
--   $7   email_id             uuid[]
--   $8   status               text[]
--   $9   attempts             bigint[]
--   $10  wait_ms              bigint[]
--   $11  pause_ms             bigint[]
--   $12  throttled            bool[]
--   $13  last_status          bigint[]
--   $14  last_error           text[]
--   $15  took_ms              bigint[]
--
-- EXPLAIN EXECUTE insert_deliveries ('00000000-0000-0000-0000-000000000000', '00000000-0000-0000-0000-000000000000', '{}', '{}', '{}', '{}', '{}', '{}', '{}', '{}', '{}', '{}', '{}', '{}', '{}');
INSERT INTO webhook_deliveries AS d
    (id, endpoint_id, company_id, event_id, type, position, email_id, status, attempts, next_at, scheduled_at, last_attempt_at, last_status, last_error, last_took_ms)
SELECT t.id, $1 /* endpoint_id */, $2 /* company_id */, t.event_id, t.type, t.position, t.email_id, t.status, t.attempts,
    CASE WHEN t.status = 'RETRYING' THEN now() + CASE WHEN t.throttled THEN greatest(t.pause_ms, 1000) ELSE greatest(t.wait_ms, t.pause_ms) END * interval '1 ms' END,
    CASE t.status WHEN 'RETRYING' THEN now() + t.wait_ms * interval '1 ms' END, CASE WHEN t.attempts > 0 THEN now() END,
    nullif(t.last_status, 0), nullif(t.last_error, ''), CASE WHEN t.attempts > 0 THEN t.took_ms END
FROM unnest(
    $3::uuid[],    -- id
    $4::text[],    -- event_id
    $5::text[],    -- type
    $6::bigint[],  -- position
    $7::uuid[],    -- email_id
    $8::text[],    -- status
    $9::bigint[],  -- attempts
    $10::bigint[], -- wait_ms
    $11::bigint[], -- pause_ms
    $12::bool[],   -- throttled
    $13::bigint[], -- last_status
    $14::text[],   -- last_error
    $15::bigint[]  -- took_ms
) AS t(id, event_id, type, position, email_id, status, attempts, wait_ms, pause_ms, throttled,
       last_status, last_error, took_ms)
ORDER BY t.id
ON CONFLICT (endpoint_id, event_id) DO UPDATE SET
    status = excluded.status, attempts = excluded.attempts, next_at = excluded.next_at, scheduled_at = excluded.scheduled_at,
    last_attempt_at = excluded.last_attempt_at,
    last_status = excluded.last_status, last_error = excluded.last_error, last_took_ms = excluded.last_took_ms, updated_at = now()
WHERE d.status IN ('DELIVERED', 'FAILED')
