-- Generated from accept_recipients.sql.tmpl and Go's description of the parameters by go generate: do not edit.
--
-- Inserts the outbox rows of a request's recipients and its idempotency key in one commit, or nothing if the key exists.
-- Another transaction that is inserting the same key is waited for until lock_timeout.
--
-- Parameters; from $15 on, each array has one element per row:
--   $1   lock_timeout         text
--   $2   company_id           uuid
--   $3   queue                text
--   $4   target               text
--   $5   request_id           text
--   $6   created_at           timestamptz
--   $7   first_id             uuid
--   $8   keyed                bool
--   $9   route                text
--   $10  key                  text
--   $11  body_sha256          bytea
--   $12  answer_status        smallint
--   $13  answer               bytea
--   $14  keep_ms              double precision
--   $15  outbox_id            uuid[]
--   $16  recipient_id         uuid[]
--   $17  email                text[]
--   $18  payload              jsonb[]
--   $19  cpf_cnpj_enc         bytea[]
--
-- EXPLAIN EXECUTE accept_recipients ('0', '00000000-0000-0000-0000-000000000000', '0', '0', '0', now(), '00000000-0000-0000-0000-000000000000', false, '0', '0', '{}', 0, '{}', 0, '{}', '{}', '{}', '{}', '{}');
WITH
-- lane is the company's lane for recipients (by dispatch_lanes' unique index, no lock). Without one nothing is inserted.
lane AS (
    SELECT id FROM dispatch_lanes
    WHERE company_id = $2 /* company_id */ AND queue = $3 /* queue */ AND mailing_id IS NULL
      AND (SELECT set_config('lock_timeout', $1 /* lock_timeout */, true)) IS NOT NULL
),

-- input adds the lane to each recipient.
input AS (
    SELECT t.*, lane.id AS lane_id
    FROM unnest(
        $15::uuid[],  -- outbox_id
        $16::uuid[],  -- recipient_id
        $17::text[],  -- email
        $18::jsonb[], -- payload
        $19::bytea[]  -- cpf_cnpj_enc
    ) AS t(outbox_id, recipient_id, email, payload, cpf_cnpj_enc)
    CROSS JOIN lane
),

-- key inserts the idempotency key (by idempotency_keys_pkey), if the request has one.
key AS (
    INSERT INTO idempotency_keys (company_id, route, key, body_sha256, status, answer, outbox_id, expires_at)
    SELECT $2 /* company_id */, $9 /* route */, $10 /* key */, $11 /* body_sha256 */, $12::smallint /* answer_status */, $13 /* answer */, $7 /* first_id */, now() + $14 /* keep_ms */ * interval '1 ms'
    FROM lane WHERE $8 /* keyed */
    ON CONFLICT (company_id, route, key) DO NOTHING
    RETURNING key
),

-- rows inserts the outbox rows (by primary key). ON CONFLICT: ids are unique, so an existing id means that database/sql has
-- run this statement before.
rows AS (
    INSERT INTO email_outbox (id, company_id, lane_id, target, request_id, payload, cpf_cnpj_enc, created_at, expires_at)
    SELECT outbox_id, $2 /* company_id */, lane_id, $4 /* target */, $5 /* request_id */, payload, cpf_cnpj_enc, $6 /* created_at */, 'infinity'
    FROM input WHERE NOT $8 /* keyed */ OR EXISTS (SELECT FROM key)
    ON CONFLICT (id) DO NOTHING
    RETURNING id
)

-- The marks of the imports, with which emails may name recipients that are not written yet.
INSERT INTO recipient_intakes (recipient_id, outbox_id, company_id, email)
SELECT i.recipient_id, i.outbox_id, $2 /* company_id */, i.email
FROM input i WHERE i.outbox_id IN (SELECT id FROM rows)
