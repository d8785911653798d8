-- Generated from load.sql.tmpl and Go's description of the parameters by go generate: do not edit.
--
-- Reads a group of emails for their attempts: email_outbox, dispatch_lanes, companies, mailing_entries, recipients,
-- recipient_intakes, suppressions, provider_gate and installation, all by primary key. It locks nothing: the claim
-- (advance.sql) checks again what may have changed since.
--
-- LIMIT with a parameter and the CASE in the join keep the planner from beginning with email_outbox.
--
-- Parameters; from $2 on, each array has one element per row:
--   $1   count                bigint
--   $2   id                   uuid[]
--
-- EXPLAIN EXECUTE load (0, '{}');
SELECT o.id, o.company_id, (SELECT id FROM installation WHERE singleton) AS installation_id, o.request_id, o.status, o.attempts, o.throttles,
       o.next_at <= now() + interval '1 s' AS due, o.expires_at <= now() AS expired,
       l.id IS NOT NULL AND l.paused_at IS NULL AND l.held_at IS NULL AND coalesce(l.parked_until <= now(), true)
           AND c.suspended_at IS NULL AND (c.mailings_paused_at IS NULL OR l.mailing_id IS NULL) AS lane_open,
       coalesce((SELECT NOT is_open AND held_at IS NULL FROM provider_gate WHERE id = 1), true)
           OR coalesce(o.id = (SELECT probe_id FROM provider_gate WHERE id = 1 AND is_open AND held_at IS NULL), false) AS breaker_closed,
       coalesce(o.id = (SELECT probe_id FROM provider_gate WHERE id = 1 AND is_open AND held_at IS NULL), false) AS probe,
       o.expires_at, o.payload, o.sender,
       -- The size of a body is known without reading it. A large one is read alone (bodySQL), when there is memory for it.
       CASE WHEN body.bytes <= 65536 THEN coalesce(o.html, '') ELSE '' END AS html,
       CASE WHEN body.bytes <= 65536 THEN coalesce(o.text_body, '') ELSE '' END AS text_body,
       CASE WHEN body.bytes <= 65536 THEN 0 ELSE body.bytes END AS large_body, o.auto_text,
       o.html_sha256, coalesce(o.checker_version, 0) AS checker_version, o.delivery,
       coalesce(o.attachments, 0) AS attachments,
       -- The recipient that the email names exists at the address the email goes to, or its import is pending.
       r.id IS NOT NULL OR EXISTS (
           SELECT FROM recipient_intakes i
           WHERE i.recipient_id = (o.payload #>> '{recipient,recipientId}')::uuid AND i.company_id = o.company_id
             AND lower(i.email) = lower(o.payload ->> 'to')) AS recipient_known,
       -- UNSUBSCRIBE suppresses emails of mailings only.
       coalesce((
           SELECT min(s.reason) FROM suppressions s
           WHERE s.company_id = o.company_id AND s.address = lower(o.payload ->> 'to')
             AND (s.reason <> 'UNSUBSCRIBE' OR l.mailing_id IS NOT NULL)), '') AS suppressed,
       CASE WHEN o.payload ?| '{cc,bcc}' THEN
           ARRAY(SELECT copy FROM jsonb_array_elements_text(coalesce(o.payload -> 'cc', '[]') || coalesce(o.payload -> 'bcc', '[]')) AS copy
                 WHERE EXISTS (SELECT FROM suppressions s
                               WHERE s.company_id = o.company_id AND s.address = lower(copy)
                                 AND (s.reason <> 'UNSUBSCRIBE' OR l.mailing_id IS NOT NULL)))
           ELSE '{}' END AS suppressed_copies,
       o.aggregate_type IS NOT NULL AS about, l.mailing_id, coalesce(e.token, '') AS token,
       -- Values of a mailing's email are as large as those of its row. Large ones are read alone (fieldsSQL).
       CASE WHEN held.bytes <= 65536 THEN coalesce(e.fields, '{}') ELSE '{}' END AS fields,
       CASE WHEN held.bytes <= 65536 THEN 0 ELSE held.bytes END AS large_fields
FROM (SELECT * FROM unnest($2::uuid[]) AS t(id) LIMIT $1 /* count */) t
JOIN email_outbox o ON o.id = t.id AND CASE WHEN t.id IS NOT NULL THEN o.target = 'email:send' END
CROSS JOIN LATERAL (SELECT coalesce(octet_length(o.html), 0) + coalesce(octet_length(o.text_body), 0) AS bytes) body
LEFT JOIN dispatch_lanes l ON l.id = o.lane_id
LEFT JOIN companies c ON c.id = o.company_id
LEFT JOIN mailing_entries e ON e.id = o.id AND l.mailing_id IS NOT NULL
CROSS JOIN LATERAL (SELECT coalesce(sum(octet_length(value)), 0) AS bytes FROM unnest(e.fields) AS value) held
LEFT JOIN recipients r ON r.id = (o.payload #>> '{recipient,recipientId}')::uuid
     AND r.company_id = o.company_id AND r.deleted_at IS NULL
     AND lower(r.email) = lower(o.payload ->> 'to')
