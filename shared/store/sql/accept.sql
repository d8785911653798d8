-- Generated from accept.sql.tmpl and Go's description of the parameters by go generate: do not edit.
--
-- Inserts a group of new emails and their idempotency keys in one commit, and returns the ids of those inserted.
--
-- accept_scheduled.sql is the same statement for groups with scheduled emails.
--
-- It waits for another transaction that is inserting one of the keys, like for every other lock, until lock_timeout (0:
-- until statement_timeout). The times that decide are those of Postgres: a wrong clock of ours delays no email.
--
-- Parameters; from $3 on, each array has one element per row:
--   $1   lock_timeout         text
--   $2   count                bigint
--   $3   id                   uuid[]
--   $4   company_id           uuid[]
--   $5   queue                text[]
--   $6   request_id           text[]
--   $7   payload              jsonb[]
--   $8   sender               text[]
--   $9   html                 text[]
--   $10  text_body            text[]
--   $11  auto_text            bool[]
--   $12  html_sha256          bytea[]
--   $13  checker_version      bigint[]
--   $14  cpf_cnpj_enc         bytea[]
--   $15  priority             bigint[]
--   $16  delivery             text[]
--   $17  send_at              timestamptz[]
--   $18  ttl_ms               bigint[]
--   $19  created_at           timestamptz[]
--   $20  keyed                bool[]
--   $21  route                text[]
--   $22  key                  text[]
--   $23  body_sha256          bytea[]
--   $24  answer_status        bigint[]
--   $25  answer               bytea[]
--   $26  keep_ms              bigint[]
--   $27  aggregate_type       text[]
--   $28  aggregate_id         text[]
--   $29  event_type           text[]
--   $30  template             text[]
--   $31  attachments          bigint[]
--
-- EXPLAIN EXECUTE accept ('0', 0, '{}', '{}', '{}', '{}', '{}', '{}', '{}', '{}', '{}', '{}', '{}', '{}', '{}', '{}', '{}', '{}', '{}', '{}', '{}', '{}', '{}', '{}', '{}', '{}', '{}', '{}', '{}', '{}', '{}');
WITH
-- input adds the lane of each email (by dispatch_lanes' unique index, no lock). An email whose company has no lane for its
-- queue is left out: nothing would ever send it.
input AS (
    SELECT t.*, l.id AS lane_id
    FROM (
        SELECT * FROM unnest(
            $3::uuid[],         -- id
            $4::uuid[],         -- company_id
            $5::text[],         -- queue
            $6::text[],         -- request_id
            $7::jsonb[],        -- payload
            $8::text[],         -- sender
            $9::text[],         -- html
            $10::text[],        -- text_body
            $11::bool[],        -- auto_text
            $12::bytea[],       -- html_sha256
            $13::bigint[],      -- checker_version
            $14::bytea[],       -- cpf_cnpj_enc
            $15::bigint[],      -- priority
            $16::text[],        -- delivery
            $17::timestamptz[], -- send_at
            $18::bigint[],      -- ttl_ms
            $19::timestamptz[], -- created_at
            $20::bool[],        -- keyed
            $21::text[],        -- route
            $22::text[],        -- key
            $23::bytea[],       -- body_sha256
            $24::bigint[],      -- answer_status
            $25::bytea[],       -- answer
            $26::bigint[],      -- keep_ms
            $27::text[],        -- aggregate_type
            $28::text[],        -- aggregate_id
            $29::text[],        -- event_type
            $30::text[],        -- template
            $31::bigint[]       -- attachments
        ) AS t(id, company_id, queue, request_id, payload, sender, html, text_body, auto_text, html_sha256,
               checker_version, cpf_cnpj_enc, priority, delivery, send_at, ttl_ms, created_at, keyed, route, key,
               body_sha256, answer_status, answer, keep_ms, aggregate_type, aggregate_id, event_type, template,
               attachments)
        LIMIT $2 /* count */
    ) t
    JOIN dispatch_lanes l ON l.company_id = t.company_id AND l.queue = t.queue AND l.mailing_id IS NULL
),

-- keys inserts the idempotency keys (by idempotency_keys_pkey), in sorted order, so that two groups with the same keys
-- cannot deadlock. A key that exists, or an earlier email of the group has, keeps its email out.
keys AS (
    INSERT INTO idempotency_keys (company_id, route, key, body_sha256, status, answer, outbox_id, expires_at)
    SELECT company_id, route, key, body_sha256, answer_status, answer, id, now() + keep_ms * interval '1 ms'
    FROM input
    WHERE keyed AND (SELECT set_config('lock_timeout', $1 /* lock_timeout */, true)) IS NOT NULL
    ORDER BY company_id, route, key
    ON CONFLICT (company_id, route, key) DO NOTHING
    RETURNING outbox_id
)

-- The emails (by primary key of email_outbox). ON CONFLICT: ids are unique, so an existing id means that database/sql has
-- run this statement before.
INSERT INTO email_outbox (id, company_id, lane_id, request_id, payload, sender, html, text_body, auto_text, html_sha256, checker_version,
                          cpf_cnpj_enc, priority, delivery, aggregate_type, aggregate_id, event_type, template, attachments, created_at, next_at, expires_at)
SELECT id, company_id, lane_id, request_id, payload, sender, html, text_body, auto_text, html_sha256, checker_version,
       cpf_cnpj_enc, priority, delivery, aggregate_type, aggregate_id, event_type, template, attachments, created_at,
       greatest(now(), send_at), greatest(now(), send_at) + ttl_ms * interval '1 ms'
FROM input
WHERE NOT keyed OR id IN (SELECT outbox_id FROM keys)
ON CONFLICT (id) DO NOTHING
RETURNING id
