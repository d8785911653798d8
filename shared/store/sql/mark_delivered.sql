-- Generated from mark_delivered.sql.tmpl and Go's description of the parameters by go generate: do not edit.
--
-- Makes failed deliveries of events that a replay has delivered DELIVERED, and locks their rows, which it finds by
-- webhook_deliveries_event.
--
-- Parameters; from $3 on, each array has one element per row:
--   $1   endpoint_id          uuid
--   $2   company_id           uuid
--   $3   event_id             text[]
--   $4   last_status          bigint[]
--   $5   took_ms              bigint[]
--
-- EXPLAIN EXECUTE mark_delivered ('00000000-0000-0000-0000-000000000000', '00000000-0000-0000-0000-000000000000', '{}', '{}', '{}');
UPDATE webhook_deliveries d SET
    status = 'DELIVERED', attempts = d.attempts + 1, last_attempt_at = now(), last_status = t.last_status, last_error = NULL, last_took_ms = t.took_ms, updated_at = now()
FROM unnest($3::text[], $4::bigint[], $5::bigint[]) AS t(event_id, last_status, took_ms)
WHERE d.endpoint_id = $1 /* endpoint_id */ AND d.company_id = $2 /* company_id */ AND d.event_id = t.event_id AND d.status = 'FAILED'
