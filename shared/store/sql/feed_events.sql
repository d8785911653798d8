-- Generated from feed_events.sql.tmpl and Go's description of the parameters by go generate: do not edit.
--
-- Reads events that rows of the feed name, each with n, the number of its row: events, logs and outbox rows of emails by
-- primary key, their aggregates along outbox_aggregates_outbox, and events of the company by primary key. Each event of the
-- company is the only one of its id and has the seq 1. first_id and last_id are the least and the greatest id, which select
-- the partitions. It locks nothing.
--
-- Parameters; from $6 on, each array has one element per row:
--   $1   company_id           uuid
--   $2   first_id             uuid
--   $3   last_id              uuid
--   $4   of_emails            text[]
--   $5   of_company           text[]
--   $6   id                   uuid[]
--   $7   first                bigint[]
--   $8   last                 bigint[]
--
-- EXPLAIN EXECUTE feed_events ('00000000-0000-0000-0000-000000000000', '00000000-0000-0000-0000-000000000000', '00000000-0000-0000-0000-000000000000', '{}', '{}', '{}', '{}', '{}');
SELECT t.n AS n, e.email_log_id AS email_id, e.seq, false AS of_company, e.type, e.metadata, e.created_at,
       l.recipient, l.request_id, l.external_id, l.tags, a.aggregate_type, a.aggregate_id, a.event_type,
       substring(o.payload ->> 'htmlRef' FROM '^mailing:([0-9a-f-]{36})$')::uuid AS mailing_id
FROM unnest($6::uuid[], $7::bigint[], $8::bigint[]) WITH ORDINALITY AS t(id, first, last, n)
JOIN email_events e ON e.email_log_id = t.id AND e.seq BETWEEN t.first AND t.last AND e.email_log_id BETWEEN $2 /* first_id */ AND $3 /* last_id */
JOIN email_logs l ON l.outbox_id = t.id AND l.outbox_id BETWEEN $2 /* first_id */ AND $3 /* last_id */ AND l.company_id = $1 /* company_id */
LEFT JOIN email_outbox o ON o.id = t.id AND o.company_id = $1 /* company_id */
LEFT JOIN outbox_aggregates a ON a.outbox_id = t.id AND a.company_id = $1 /* company_id */
WHERE $4::text[] /* of_emails */ IS NULL OR e.type LIKE ANY ($4 /* of_emails */)
UNION ALL
SELECT t.n, c.id, 1, true, c.type, c.metadata, c.created_at, '', '', NULL, NULL, NULL, NULL, NULL, NULL
FROM unnest($6::uuid[], $7::bigint[], $8::bigint[]) WITH ORDINALITY AS t(id, first, last, n)
JOIN company_events c ON c.id = t.id AND c.company_id = $1 /* company_id */
WHERE t.first = 1 AND t.last = 1 AND ($5::text[] /* of_company */ IS NULL OR c.type LIKE ANY ($5 /* of_company */))
ORDER BY 1, 3
