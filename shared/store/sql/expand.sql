-- Generated from expand.sql.tmpl and Go's description of the parameters by go generate: do not edit.
--
-- Takes one step of a mailing's expansion: writes its row, and makes emails of entries or marks these INVALID. It writes
-- nothing if the job has lost its hold or the cursor is elsewhere, so that no entry is expanded twice, however many jobs
-- work at it. Entry and email have the same id, which would keep out a second email as well.
--
-- Each lock is waited for until lock_timeout. recipients says which recipients are written: 'all'; 'free', those that no
-- other transaction has locked; 'existing', those of 'free' that exist. An email whose recipient is not written (unwritten,
-- below) carries all that its entry says about the recipient, and its claim writes it, as that of a single email does.
--
-- Parameters; from $18 on, each array has one element per row:
--   $1   lock_timeout         text
--   $2   mailing_id           uuid
--   $3   generation           integer
--   $4   heartbeat            timestamptz
--   $5   expanded_to          uuid
--   $6   to                   uuid
--   $7   lines                integer
--   $8   finished             bool
--   $9   waiting_for          text
--   $10  waiting_until        timestamptz
--   $11  job_id               uuid
--   $12  delay_ms             bigint
--   $13  count                bigint
--   $14  recipients           text
--   $15  create_from          uuid
--   $16  no_new_recipients    bool
--   $17  priority             smallint
--   $18  id                   uuid[]
--   $19  invalid_reason       text[]
--   $20  details              text[]
--   $21  recipient_id         uuid[]
--   $22  payload              jsonb[]
--
-- EXPLAIN EXECUTE expand ('0', '00000000-0000-0000-0000-000000000000', 0, now(), '00000000-0000-0000-0000-000000000000', '00000000-0000-0000-0000-000000000000', 0, false, '0', now(), '00000000-0000-0000-0000-000000000000', 0, 0, '0', '00000000-0000-0000-0000-000000000000', false, 0, '{}', '{}', '{}', '{}', '{}');
WITH
-- mailing locks and writes the mailing's row (by primary key).
mailing AS (
    UPDATE mailings SET
        status = CASE WHEN $8 /* finished */ THEN 'SENDING' WHEN $11::uuid /* job_id */ IS NOT NULL THEN 'QUEUED' ELSE status END,
        expanded_to = coalesce($6 /* to */, expanded_to),
        processed_lines = processed_lines + $7 /* lines */,
        expanded_at = CASE WHEN $8 /* finished */ THEN now() ELSE expanded_at END,
        last_attempt = CASE WHEN $8 /* finished */ OR $11::uuid /* job_id */ IS NOT NULL THEN NULL ELSE now() END,
        generation = generation + CASE WHEN $11::uuid /* job_id */ IS NOT NULL THEN 1 ELSE 0 END,
        attempts = 0, error_message = NULL, updated_at = now(), waiting_for = nullif($9 /* waiting_for */, ''), waiting_until = $10 /* waiting_until */
    WHERE id = $2 /* mailing_id */ AND status = 'PROCESSING' AND generation = $3 /* generation */ AND last_attempt = $4 /* heartbeat */
      AND expanded_to IS NOT DISTINCT FROM $5 /* expanded_to */ AND (SELECT set_config('lock_timeout', $1 /* lock_timeout */, true)) IS NOT NULL
    RETURNING *
),

-- free_recipients locks the entries' recipients (by primary key) that no other transaction has locked, unless 'all' are written.
free_recipients AS MATERIALIZED (
    SELECT r.id FROM mailing m
    CROSS JOIN (SELECT * FROM unnest($21::uuid[]) AS t(recipient_id) WHERE $14 /* recipients */ <> 'all' LIMIT $13 /* count */) t
    JOIN recipients r ON r.id = t.recipient_id AND r.company_id = m.company_id
    FOR NO KEY UPDATE OF r SKIP LOCKED
),

-- locked_recipients are the recipients that exist and could not be locked (by primary key, no lock), for 'free'.
locked_recipients AS MATERIALIZED (
    SELECT r.id FROM mailing m
    CROSS JOIN (SELECT * FROM unnest($21::uuid[]) AS t(recipient_id) WHERE $14 /* recipients */ = 'free' LIMIT $13 /* count */) t
    JOIN recipients r ON r.id = t.recipient_id AND r.company_id = m.company_id
    WHERE r.id NOT IN (SELECT id FROM free_recipients)
),

-- entry reads the PENDING ones of the entries (by primary key) with the mailing's lane (by dispatch_lanes' unique index)
-- and their recipients (by primary key), without a lock.
--
-- deleted: the recipient was deleted, and a list does not restore it. The email names its recipientId, so that the
-- worker fails it where the tenant sees it. After an erasure (gatewayctl person erase) a list that is uploaded later makes
-- a new recipient.
-- no_recipient: the recipient does not exist, and none is made: the list is older than rows of deleted recipients are kept
-- (before create_from), or the company has as many recipients as it may (no_new_recipients). The email's recipientId is null,
-- and its claim writes no recipient either. Its entry and, from the claim on, its log have the id that the recipient would
-- have, so that a search for the person by CPF or CNPJ alone finds them after the number has been removed.
-- unwritten: the recipient is locked, or with 'existing' new. The email has no recipientId: its claim derives it.
entry AS MATERIALIZED (
    SELECT t.*, m.company_id, m.request_id, m.sender, m.delivery, l.id AS lane_id,
           e.recipient_external_id, e.cpf_cnpj_hash, e.cpf_cnpj_enc, e.razao_social, e.nome, e.email,
           r.deleted_at IS NOT NULL AND (r.email <> 'erased@erased.invalid' OR t.id < r.deletion_id) AS deleted,
           (t.id < $15 /* create_from */ OR $16 /* no_new_recipients */) AND r.id IS NULL AS no_recipient,
           $14 /* recipients */ = 'existing' AND (t.recipient_id IN (SELECT id FROM free_recipients)) IS NOT TRUE
               OR coalesce(t.recipient_id = ANY (ARRAY(SELECT id FROM locked_recipients)), false) AS unwritten
    FROM mailing m
    CROSS JOIN (
        SELECT * FROM unnest(
            $18::uuid[], -- id
            $19::text[], -- invalid_reason
            $20::text[], -- details
            $21::uuid[], -- recipient_id
            $22::jsonb[] -- payload
        ) AS t(id, invalid_reason, details, recipient_id, payload)
        LIMIT $13 /* count */
    ) t
    JOIN mailing_entries e ON e.id = t.id AND e.status = 'PENDING'
    LEFT JOIN dispatch_lanes l ON l.company_id = m.company_id AND l.queue = 'email:send:low' AND l.mailing_id = m.id
    LEFT JOIN recipients r ON r.id = t.recipient_id
),

-- updates has what the entries say about their recipients, accepted when the list was uploaded.
updates AS (
    SELECT recipient_id, company_id, id, recipient_external_id AS external_id, cpf_cnpj_hash, cpf_cnpj_enc, razao_social, nome, email, true AS states_email
    FROM entry WHERE invalid_reason IS NULL AND NOT deleted AND NOT no_recipient AND NOT unwritten
),

-- merged merges the CTE updates into recipients, per field. It locks recipients by primary key, in id order. updates has
-- the columns recipient_id, company_id, id, external_id, cpf_cnpj_hash, cpf_cnpj_enc, razao_social, nome, email,
-- states_email.
--
-- Updates arrive in any order. Their ids are UUIDv7 and sort by time of acceptance. Per field the newest update wins, and an
-- older one fills what is empty. NULL says nothing about a field. An address without states_email only fills a new row. A
-- deletion voids the updates that were accepted before it, and the first update after it starts a new recipient, which has
-- none of the deleted one's fields. A batch may hold updates from before and after a deletion.
--
-- Hash and encrypted number are one field, and the hash decides which update wins. An update may have the hash alone: then
-- the known encrypted number stays if it belongs to the same hash, and an older update may still fill it.
--
-- An update that changes nothing is not written, unless it is newer: its id must win over an older, different update that
-- may still arrive.
merged AS (
    INSERT INTO recipients (id, company_id, intake_id, merged_by, external_id, external_id_by, cpf_cnpj_hash, cpf_cnpj_by, cpf_cnpj_enc, cpf_cnpj_enc_by,
                            razao_social, razao_social_by, nome, nome_by, email)
    SELECT recipient_id, company_id, address_by, address_by, external_id, external_id_by, cpf_cnpj_hash, cpf_cnpj_by,
           CASE WHEN hash_of_enc = cpf_cnpj_hash THEN cpf_cnpj_enc END, cpf_cnpj_enc_by, razao_social, razao_social_by, nome, nome_by, email
    FROM (
        SELECT recipient_id, company_id,
               first_present(external_id) AS external_id, first_present(id) FILTER (WHERE external_id IS NOT NULL) AS external_id_by,
               first_present(cpf_cnpj_hash) AS cpf_cnpj_hash, first_present(id) FILTER (WHERE cpf_cnpj_hash IS NOT NULL) AS cpf_cnpj_by,
               first_present(cpf_cnpj_enc) FILTER (WHERE cpf_cnpj_hash IS NOT NULL) AS cpf_cnpj_enc,
               first_present(id) FILTER (WHERE cpf_cnpj_hash IS NOT NULL AND cpf_cnpj_enc IS NOT NULL) AS cpf_cnpj_enc_by,
               first_present(cpf_cnpj_hash) FILTER (WHERE cpf_cnpj_enc IS NOT NULL) AS hash_of_enc,
               first_present(razao_social) AS razao_social, first_present(id) FILTER (WHERE razao_social IS NOT NULL) AS razao_social_by,
               first_present(nome) AS nome, first_present(id) FILTER (WHERE nome IS NOT NULL) AS nome_by,
               coalesce(first_present(email) FILTER (WHERE states_email), first_present(email)) AS email,
               coalesce(first_present(id) FILTER (WHERE states_email), '00000000-0000-0000-0000-000000000000'::uuid) AS address_by
        FROM (SELECT * FROM updates ORDER BY recipient_id, id DESC) newest_first
        GROUP BY recipient_id, company_id
    ) said
    ORDER BY recipient_id
    ON CONFLICT (id) DO UPDATE SET
        intake_id = CASE WHEN /* newAddress */ excluded.intake_id > greatest('00000000-0000-0000-0000-000000000000'::uuid, recipients.deletion_id, CASE WHEN recipients.deleted_at IS NOT NULL THEN greatest(recipients.intake_id, first_id_at(recipients.deleted_at)) ELSE recipients.intake_id END) THEN excluded.intake_id ELSE coalesce(recipients.intake_id, '00000000-0000-0000-0000-000000000000'::uuid) END,
        merged_by = CASE WHEN /* newAddress */ excluded.intake_id > greatest('00000000-0000-0000-0000-000000000000'::uuid, recipients.deletion_id, CASE WHEN recipients.deleted_at IS NOT NULL THEN greatest(recipients.intake_id, first_id_at(recipients.deleted_at)) ELSE recipients.intake_id END) THEN excluded.intake_id ELSE coalesce(recipients.intake_id, '00000000-0000-0000-0000-000000000000'::uuid) END,
        external_id = CASE WHEN /* newExternalID */ coalesce(excluded.external_id_by > greatest('00000000-0000-0000-0000-000000000000'::uuid, recipients.deletion_id, CASE WHEN recipients.deleted_at IS NOT NULL THEN greatest(recipients.intake_id, first_id_at(recipients.deleted_at)) WHEN recipients.external_id IS NULL THEN NULL WHEN recipients.merged_by = recipients.intake_id THEN recipients.external_id_by ELSE recipients.intake_id END), false) THEN excluded.external_id WHEN recipients.deleted_at IS NULL THEN recipients.external_id END,
        external_id_by = CASE WHEN /* newExternalID */ coalesce(excluded.external_id_by > greatest('00000000-0000-0000-0000-000000000000'::uuid, recipients.deletion_id, CASE WHEN recipients.deleted_at IS NOT NULL THEN greatest(recipients.intake_id, first_id_at(recipients.deleted_at)) WHEN recipients.external_id IS NULL THEN NULL WHEN recipients.merged_by = recipients.intake_id THEN recipients.external_id_by ELSE recipients.intake_id END), false) THEN excluded.external_id_by WHEN recipients.merged_by = recipients.intake_id THEN recipients.external_id_by ELSE recipients.intake_id END,
        cpf_cnpj_hash = CASE WHEN /* newNumber */ coalesce(excluded.cpf_cnpj_by > greatest('00000000-0000-0000-0000-000000000000'::uuid, recipients.deletion_id, CASE WHEN recipients.deleted_at IS NOT NULL THEN greatest(recipients.intake_id, first_id_at(recipients.deleted_at)) WHEN recipients.cpf_cnpj_hash IS NULL THEN NULL WHEN recipients.merged_by = recipients.intake_id THEN recipients.cpf_cnpj_by ELSE recipients.intake_id END), false) THEN excluded.cpf_cnpj_hash WHEN recipients.deleted_at IS NULL THEN recipients.cpf_cnpj_hash END,
        cpf_cnpj_enc = CASE WHEN /* newEncrypted */ (/* newNumber */ coalesce(excluded.cpf_cnpj_by > greatest('00000000-0000-0000-0000-000000000000'::uuid, recipients.deletion_id, CASE WHEN recipients.deleted_at IS NOT NULL THEN greatest(recipients.intake_id, first_id_at(recipients.deleted_at)) WHEN recipients.cpf_cnpj_hash IS NULL THEN NULL WHEN recipients.merged_by = recipients.intake_id THEN recipients.cpf_cnpj_by ELSE recipients.intake_id END), false) AND excluded.cpf_cnpj_enc IS NOT NULL AND excluded.cpf_cnpj_enc_by > greatest('00000000-0000-0000-0000-000000000000'::uuid, recipients.deletion_id, CASE WHEN recipients.deleted_at IS NOT NULL THEN greatest(recipients.intake_id, first_id_at(recipients.deleted_at)) END) OR /* missingEncrypted */ coalesce(recipients.deleted_at IS NULL AND recipients.cpf_cnpj_hash = excluded.cpf_cnpj_hash AND recipients.cpf_cnpj_enc IS NULL AND excluded.cpf_cnpj_enc IS NOT NULL AND excluded.cpf_cnpj_enc_by > greatest('00000000-0000-0000-0000-000000000000'::uuid, recipients.deletion_id, CASE WHEN recipients.deleted_at IS NOT NULL THEN greatest(recipients.intake_id, first_id_at(recipients.deleted_at)) END), false)) THEN excluded.cpf_cnpj_enc WHEN /* keptEncrypted */ recipients.deleted_at IS NULL AND (NOT /* newNumber */ coalesce(excluded.cpf_cnpj_by > greatest('00000000-0000-0000-0000-000000000000'::uuid, recipients.deletion_id, CASE WHEN recipients.deleted_at IS NOT NULL THEN greatest(recipients.intake_id, first_id_at(recipients.deleted_at)) WHEN recipients.cpf_cnpj_hash IS NULL THEN NULL WHEN recipients.merged_by = recipients.intake_id THEN recipients.cpf_cnpj_by ELSE recipients.intake_id END), false) OR recipients.cpf_cnpj_hash = excluded.cpf_cnpj_hash) THEN recipients.cpf_cnpj_enc END,
        cpf_cnpj_enc_by = CASE WHEN /* newEncrypted */ (/* newNumber */ coalesce(excluded.cpf_cnpj_by > greatest('00000000-0000-0000-0000-000000000000'::uuid, recipients.deletion_id, CASE WHEN recipients.deleted_at IS NOT NULL THEN greatest(recipients.intake_id, first_id_at(recipients.deleted_at)) WHEN recipients.cpf_cnpj_hash IS NULL THEN NULL WHEN recipients.merged_by = recipients.intake_id THEN recipients.cpf_cnpj_by ELSE recipients.intake_id END), false) AND excluded.cpf_cnpj_enc IS NOT NULL AND excluded.cpf_cnpj_enc_by > greatest('00000000-0000-0000-0000-000000000000'::uuid, recipients.deletion_id, CASE WHEN recipients.deleted_at IS NOT NULL THEN greatest(recipients.intake_id, first_id_at(recipients.deleted_at)) END) OR /* missingEncrypted */ coalesce(recipients.deleted_at IS NULL AND recipients.cpf_cnpj_hash = excluded.cpf_cnpj_hash AND recipients.cpf_cnpj_enc IS NULL AND excluded.cpf_cnpj_enc IS NOT NULL AND excluded.cpf_cnpj_enc_by > greatest('00000000-0000-0000-0000-000000000000'::uuid, recipients.deletion_id, CASE WHEN recipients.deleted_at IS NOT NULL THEN greatest(recipients.intake_id, first_id_at(recipients.deleted_at)) END), false)) THEN excluded.cpf_cnpj_enc_by WHEN /* keptEncrypted */ recipients.deleted_at IS NULL AND (NOT /* newNumber */ coalesce(excluded.cpf_cnpj_by > greatest('00000000-0000-0000-0000-000000000000'::uuid, recipients.deletion_id, CASE WHEN recipients.deleted_at IS NOT NULL THEN greatest(recipients.intake_id, first_id_at(recipients.deleted_at)) WHEN recipients.cpf_cnpj_hash IS NULL THEN NULL WHEN recipients.merged_by = recipients.intake_id THEN recipients.cpf_cnpj_by ELSE recipients.intake_id END), false) OR recipients.cpf_cnpj_hash = excluded.cpf_cnpj_hash) THEN recipients.cpf_cnpj_enc_by END,
        cpf_cnpj_by = CASE WHEN /* newNumber */ coalesce(excluded.cpf_cnpj_by > greatest('00000000-0000-0000-0000-000000000000'::uuid, recipients.deletion_id, CASE WHEN recipients.deleted_at IS NOT NULL THEN greatest(recipients.intake_id, first_id_at(recipients.deleted_at)) WHEN recipients.cpf_cnpj_hash IS NULL THEN NULL WHEN recipients.merged_by = recipients.intake_id THEN recipients.cpf_cnpj_by ELSE recipients.intake_id END), false) THEN excluded.cpf_cnpj_by WHEN recipients.merged_by = recipients.intake_id THEN recipients.cpf_cnpj_by ELSE recipients.intake_id END,
        razao_social = CASE WHEN /* newRazaoSocial */ coalesce(excluded.razao_social_by > greatest('00000000-0000-0000-0000-000000000000'::uuid, recipients.deletion_id, CASE WHEN recipients.deleted_at IS NOT NULL THEN greatest(recipients.intake_id, first_id_at(recipients.deleted_at)) WHEN recipients.razao_social IS NULL THEN NULL WHEN recipients.merged_by = recipients.intake_id THEN recipients.razao_social_by ELSE recipients.intake_id END), false) THEN excluded.razao_social WHEN recipients.deleted_at IS NULL THEN recipients.razao_social END,
        razao_social_by = CASE WHEN /* newRazaoSocial */ coalesce(excluded.razao_social_by > greatest('00000000-0000-0000-0000-000000000000'::uuid, recipients.deletion_id, CASE WHEN recipients.deleted_at IS NOT NULL THEN greatest(recipients.intake_id, first_id_at(recipients.deleted_at)) WHEN recipients.razao_social IS NULL THEN NULL WHEN recipients.merged_by = recipients.intake_id THEN recipients.razao_social_by ELSE recipients.intake_id END), false) THEN excluded.razao_social_by WHEN recipients.merged_by = recipients.intake_id THEN recipients.razao_social_by ELSE recipients.intake_id END,
        nome = CASE WHEN /* newNome */ coalesce(excluded.nome_by > greatest('00000000-0000-0000-0000-000000000000'::uuid, recipients.deletion_id, CASE WHEN recipients.deleted_at IS NOT NULL THEN greatest(recipients.intake_id, first_id_at(recipients.deleted_at)) WHEN recipients.nome IS NULL THEN NULL WHEN recipients.merged_by = recipients.intake_id THEN recipients.nome_by ELSE recipients.intake_id END), false) THEN excluded.nome WHEN recipients.deleted_at IS NULL THEN recipients.nome END,
        nome_by = CASE WHEN /* newNome */ coalesce(excluded.nome_by > greatest('00000000-0000-0000-0000-000000000000'::uuid, recipients.deletion_id, CASE WHEN recipients.deleted_at IS NOT NULL THEN greatest(recipients.intake_id, first_id_at(recipients.deleted_at)) WHEN recipients.nome IS NULL THEN NULL WHEN recipients.merged_by = recipients.intake_id THEN recipients.nome_by ELSE recipients.intake_id END), false) THEN excluded.nome_by WHEN recipients.merged_by = recipients.intake_id THEN recipients.nome_by ELSE recipients.intake_id END,
        email = CASE WHEN /* newAddress */ excluded.intake_id > greatest('00000000-0000-0000-0000-000000000000'::uuid, recipients.deletion_id, CASE WHEN recipients.deleted_at IS NOT NULL THEN greatest(recipients.intake_id, first_id_at(recipients.deleted_at)) ELSE recipients.intake_id END) THEN excluded.email WHEN recipients.deleted_at IS NULL THEN recipients.email ELSE (SELECT s.email FROM updates s WHERE s.recipient_id = recipients.id ORDER BY s.id DESC LIMIT 1) END,
        deletion_id = greatest(recipients.deletion_id, CASE WHEN recipients.deleted_at IS NOT NULL THEN greatest(recipients.intake_id, first_id_at(recipients.deleted_at)) END),
        deleted_at = NULL,
        updated_at = now()
    WHERE recipients.company_id = excluded.company_id
      AND (/* newAddress */ excluded.intake_id > greatest('00000000-0000-0000-0000-000000000000'::uuid, recipients.deletion_id, CASE WHEN recipients.deleted_at IS NOT NULL THEN greatest(recipients.intake_id, first_id_at(recipients.deleted_at)) ELSE recipients.intake_id END) OR /* newExternalID */ coalesce(excluded.external_id_by > greatest('00000000-0000-0000-0000-000000000000'::uuid, recipients.deletion_id, CASE WHEN recipients.deleted_at IS NOT NULL THEN greatest(recipients.intake_id, first_id_at(recipients.deleted_at)) WHEN recipients.external_id IS NULL THEN NULL WHEN recipients.merged_by = recipients.intake_id THEN recipients.external_id_by ELSE recipients.intake_id END), false) OR /* newNumber */ coalesce(excluded.cpf_cnpj_by > greatest('00000000-0000-0000-0000-000000000000'::uuid, recipients.deletion_id, CASE WHEN recipients.deleted_at IS NOT NULL THEN greatest(recipients.intake_id, first_id_at(recipients.deleted_at)) WHEN recipients.cpf_cnpj_hash IS NULL THEN NULL WHEN recipients.merged_by = recipients.intake_id THEN recipients.cpf_cnpj_by ELSE recipients.intake_id END), false) OR /* missingEncrypted */ coalesce(recipients.deleted_at IS NULL AND recipients.cpf_cnpj_hash = excluded.cpf_cnpj_hash AND recipients.cpf_cnpj_enc IS NULL AND excluded.cpf_cnpj_enc IS NOT NULL AND excluded.cpf_cnpj_enc_by > greatest('00000000-0000-0000-0000-000000000000'::uuid, recipients.deletion_id, CASE WHEN recipients.deleted_at IS NOT NULL THEN greatest(recipients.intake_id, first_id_at(recipients.deleted_at)) END), false) OR /* newRazaoSocial */ coalesce(excluded.razao_social_by > greatest('00000000-0000-0000-0000-000000000000'::uuid, recipients.deletion_id, CASE WHEN recipients.deleted_at IS NOT NULL THEN greatest(recipients.intake_id, first_id_at(recipients.deleted_at)) WHEN recipients.razao_social IS NULL THEN NULL WHEN recipients.merged_by = recipients.intake_id THEN recipients.razao_social_by ELSE recipients.intake_id END), false) OR /* newNome */ coalesce(excluded.nome_by > greatest('00000000-0000-0000-0000-000000000000'::uuid, recipients.deletion_id, CASE WHEN recipients.deleted_at IS NOT NULL THEN greatest(recipients.intake_id, first_id_at(recipients.deleted_at)) WHEN recipients.nome IS NULL THEN NULL WHEN recipients.merged_by = recipients.intake_id THEN recipients.nome_by ELSE recipients.intake_id END), false)) AND (recipients.deleted_at IS NULL OR recipients.email = 'erased@erased.invalid')
),

-- outbox inserts the emails (by primary key, in id order).
outbox AS (
    INSERT INTO email_outbox (id, company_id, lane_id, request_id, payload, sender, priority, delivery, expires_at, cpf_cnpj_enc)
    SELECT id, company_id, lane_id, request_id,
           CASE WHEN deleted THEN jsonb_set(payload, '{recipient,recipientId}', to_jsonb(recipient_id))
                WHEN no_recipient THEN jsonb_set(payload, '{recipient,recipientId}', 'null')
                WHEN unwritten THEN payload #- '{recipient,recipientId}' ELSE payload END,
           sender, $17 /* priority */, delivery, now() + interval '10 years', CASE WHEN unwritten AND NOT deleted AND NOT no_recipient THEN cpf_cnpj_enc END
    FROM entry WHERE invalid_reason IS NULL
    ORDER BY id
    ON CONFLICT (id) DO NOTHING
),

-- marked locks and writes the entries (by primary key).
marked AS (
    UPDATE mailing_entries e SET
        status = CASE WHEN n.invalid_reason IS NULL THEN 'QUEUED' ELSE 'INVALID' END,
        invalid_reason = n.invalid_reason,
        validation_details = n.details,
        last_attempt = CASE WHEN n.invalid_reason IS NULL THEN e.last_attempt ELSE now() END,
        recipient_id = CASE WHEN n.invalid_reason IS NULL THEN n.recipient_id END,
        cpf_cnpj_enc = NULL,
        updated_at = now()
    FROM entry n WHERE e.id = n.id
),

-- changed marks the mailing, so that it is counted soon.
changed AS (
    INSERT INTO mailing_marks (mailing_id) SELECT id FROM mailing WHERE $6::uuid /* to */ IS NOT NULL OR $8 /* finished */
),

-- next is the mailing with its next job, if there is one.
next AS (
    SELECT m.*, $11::uuid /* job_id */ AS job_id, $12::bigint /* delay_ms */ AS delay_ms FROM mailing m
),

-- job inserts the next job (by primary key of email_outbox) in the company's lane (by dispatch_lanes' unique index).
job AS (
    INSERT INTO email_outbox (id, company_id, lane_id, target, request_id, payload, next_at, expires_at)
    SELECT n.job_id, n.company_id, l.id, 'mailing.process', n.request_id,
           jsonb_build_object('mailingId', n.id, 'storageUrl', n.storage_url, 'generation', n.generation),
           now() + n.delay_ms * interval '1 ms', 'infinity'
    FROM next n LEFT JOIN dispatch_lanes l ON l.company_id = n.company_id AND l.queue = 'mailing.jobs.process' AND l.mailing_id IS NULL
    WHERE n.job_id IS NOT NULL
    ON CONFLICT (id) DO NOTHING
)
SELECT last_attempt, (SELECT count(*) FROM entry WHERE invalid_reason IS NULL) AS queued FROM mailing
