-- Generated from read_feedback.sql.tmpl and Go's description of the parameters by go generate: do not edit.
--
-- Reads the emails of the company that notifications of the provider are about: their rows and what their timelines contain
-- already. It locks nothing: take_feedback.sql has locked the rows that could change. The outbox row may be purged. The log and
-- the attempt may be missing: the claim that wrote them is lost after the promotion of a standby that had not received it.
--
-- email_logs, email_outbox and dispatch_lanes are read by primary key, and the timeline, whose length is
-- bounded, by the first column of its primary key.
--
-- Parameters; from $4 on, each array has one element per row:
--   $1   count                bigint
--   $2   first_id             uuid
--   $3   last_id              uuid
--   $4   outbox_id            uuid[]
--   $5   event                text[]
--   $6   metadata             jsonb[]
--   $7   stored               jsonb[]
--   $8   message_id           text[]
--
-- EXPLAIN EXECUTE read_feedback (0, '00000000-0000-0000-0000-000000000000', '00000000-0000-0000-0000-000000000000', '{}', '{}', '{}', '{}', '{}');
SELECT t.outbox_id, o.id IS NOT NULL AS in_outbox, coalesce(o.status, l.status, '') AS status, coalesce(l.ses_message_id, '') AS ses_message_id,
       CASE WHEN o.id IS NULL THEN ARRAY[l.recipient]
            ELSE (o.payload ->> 'to') || ARRAY(SELECT jsonb_array_elements_text(coalesce(o.payload -> 'cc', '[]') || coalesce(o.payload -> 'bcc', '[]')))
       END AS recipients,
       o.payload ?| '{cc,bcc}' IS TRUE AS copied,
       coalesce(l.recipient, o.payload ->> 'to') = 'erased@erased.invalid' AS erased, coalesce(e.reported, 0) AS reported, coalesce(o.outcome_unknown, false) AS outcome_unknown,
       coalesce(l.request_id, o.request_id) AS request_id, coalesce(o.attempts - o.throttles, l.attempts - l.throttles) AS attempt, lane.mailing_id,
       coalesce(e.told, false) AS told, coalesce(e.doubled, false) AS doubled
FROM (SELECT * FROM unnest(
    $4::uuid[],  -- outbox_id
    $5::text[],  -- event
    $6::jsonb[], -- metadata
    $7::jsonb[], -- stored
    $8::text[]   -- message_id
) AS t(outbox_id, event, metadata, stored, message_id) LIMIT $1 /* count */) t
LEFT JOIN email_outbox o ON o.id = t.outbox_id AND CASE WHEN t.outbox_id IS NOT NULL THEN o.target = 'email:send' END
LEFT JOIN dispatch_lanes lane ON lane.id = o.lane_id
LEFT JOIN LATERAL (
    SELECT * FROM email_logs
    WHERE outbox_id BETWEEN t.outbox_id AND t.outbox_id
      AND outbox_id >= CASE WHEN now() IS NOT NULL THEN $2::uuid /* first_id */ END
      AND outbox_id <= CASE WHEN now() IS NOT NULL THEN $3::uuid /* last_id */ END
    ORDER BY outbox_id LIMIT 1
) l ON true
CROSS JOIN LATERAL (
    SELECT bool_or(type = t.event AND (metadata @> t.metadata OR metadata @> t.stored)) AS told,
           count(*) FILTER (WHERE type IN ('DELIVERED', 'DELIVERY_DELAYED', 'BOUNCED', 'COMPLAINED', 'REJECTED', 'RENDERING_FAILED', 'OPENED', 'CLICKED', 'SUBSCRIPTION_CHANGED', 'DUPLICATE_CONFIRMED')) AS reported,
           bool_or(type = 'DUPLICATE_CONFIRMED' AND metadata ->> 'sesMessageId' = t.message_id) AS doubled
    FROM email_events
    WHERE email_log_id = t.outbox_id
      AND email_log_id >= CASE WHEN now() IS NOT NULL THEN $2::uuid /* first_id */ END
      AND email_log_id <= CASE WHEN now() IS NOT NULL THEN $3::uuid /* last_id */ END
) e
