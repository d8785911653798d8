-- Generated from append_feedback.sql.tmpl and Go's description of the parameters by go generate: do not edit.
--
-- Adds events after the newest event of emails that are SENT, or of those whose outbox row is purged and whose log is
-- SENT. take_feedback.sql has locked the rows, which are found by primary key.
--
-- Parameters; from $4 on, each array has one element per row:
--   $1   count                bigint
--   $2   first_id             uuid
--   $3   last_id              uuid
--   $4   outbox_id            uuid[]
--   $5   events               jsonb[]
--   $6   ses_message_id       text[]
--   $7   duplicate            bool[]
--
-- EXPLAIN EXECUTE append_feedback (0, '00000000-0000-0000-0000-000000000000', '00000000-0000-0000-0000-000000000000', '{}', '{}', '{}', '{}');
WITH
-- log reads where each timeline ends.
log AS MATERIALIZED (
    SELECT t.*, l.event_seq, l.last_event
    FROM (SELECT * FROM unnest($4::uuid[], $5::jsonb[], $6::text[], $7::bool[]) AS t(outbox_id, events, ses_message_id, duplicate) LIMIT $1 /* count */) t
    CROSS JOIN LATERAL (
        SELECT event_seq, last_event FROM email_logs
        WHERE outbox_id BETWEEN t.outbox_id AND t.outbox_id
          AND outbox_id >= CASE WHEN now() IS NOT NULL THEN $2::uuid /* first_id */ END
          AND outbox_id <= CASE WHEN now() IS NOT NULL THEN $3::uuid /* last_id */ END
        ORDER BY outbox_id LIMIT 1
    ) l
),

-- moved writes email_logs.
moved AS (
    UPDATE email_logs l SET
        status = 'SENT', sent_at = coalesce(l.sent_at, now()), failed_at = NULL, error_code = NULL, error_reason = NULL,
        ses_message_id = coalesce(l.ses_message_id, log.ses_message_id),
        possible_duplicate = l.possible_duplicate OR log.duplicate,
        event_seq = log.event_seq + jsonb_array_length(log.events),
        last_event = coalesce(log.events #>> '{-1,type}', log.last_event)
    FROM log
    WHERE l.outbox_id = log.outbox_id
      AND l.outbox_id >= CASE WHEN now() IS NOT NULL THEN $2::uuid /* first_id */ END
      AND l.outbox_id <= CASE WHEN now() IS NOT NULL THEN $3::uuid /* last_id */ END
),

-- known writes email_outbox, only where something changes.
known AS (
    UPDATE email_outbox o SET outcome_unknown = false, possible_duplicate = o.possible_duplicate OR log.duplicate
    FROM log
    WHERE o.id = log.outbox_id AND CASE WHEN log.outbox_id IS NOT NULL THEN o.outcome_unknown OR log.duplicate AND NOT o.possible_duplicate END
)
INSERT INTO email_events (email_log_id, seq, previous, type, metadata, created_at)
SELECT log.outbox_id, log.event_seq + e.n,
       CASE WHEN e.n = 1 THEN log.last_event ELSE log.events -> (e.n - 2)::int ->> 'type' END,
       e.event ->> 'type', coalesce(nullif(e.event -> 'metadata', 'null'), '{}'), (e.event ->> 'at')::timestamptz
FROM log CROSS JOIN LATERAL jsonb_array_elements(log.events) WITH ORDINALITY AS e(event, n)
