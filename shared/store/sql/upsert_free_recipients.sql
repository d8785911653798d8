-- Generated from upsert_recipients.sql.tmpl and Go's description of the parameters by go generate: do not edit.
--
-- Writes a batch of imports to recipients, whatever was written before them, and returns which of the imports exist and
-- which were written.
--
-- Imports whose outbox row or recipient another transaction has locked are left out. A recipient that another transaction
-- is inserting is waited for. upsert_recipients.sql is the same statement for the first try, which leaves out none.
-- Each other lock is waited for until lock_timeout. Most of them are those of claims, and of a dispatcher that is still
-- recording that it published the rows.
--
-- Parameters; from $3 on, each array has one element per row:
--   $1   lock_timeout         text
--   $2   count                bigint
--   $3   id                   uuid[]
--
-- EXPLAIN EXECUTE upsert_free_recipients ('0', 0, '{}');
WITH
-- held locks the outbox rows of the imports (by primary key, in id order). recipient_id is NULL in a row that names its
-- recipient in no known form.
held AS MATERIALIZED (
    SELECT o.id, o.company_id, o.status, o.payload, o.cpf_cnpj_enc,
           CASE WHEN o.payload ->> 'id' ~ '^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$' THEN (o.payload ->> 'id')::uuid END AS recipient_id
    FROM (SELECT * FROM unnest($3::uuid[]) AS t(id) WHERE (SELECT set_config('lock_timeout', $1 /* lock_timeout */, true)) IS NOT NULL LIMIT $2 /* count */) t
    JOIN email_outbox o ON o.id = t.id AND o.target = 'recipients.upsert'
    ORDER BY o.id
    FOR UPDATE OF o SKIP LOCKED
),

-- free_recipients locks the recipients (by primary key) that no other transaction has locked.
free_recipients AS MATERIALIZED (
    SELECT r.id FROM (SELECT recipient_id, company_id FROM held LIMIT $2 /* count */) h
    JOIN recipients r ON r.id = h.recipient_id AND r.company_id = h.company_id
    FOR NO KEY UPDATE OF r SKIP LOCKED
),

-- locked_recipients are the recipients that exist and could not be locked (by primary key, no lock).
locked_recipients AS MATERIALIZED (
    SELECT r.id FROM (SELECT recipient_id, company_id FROM held LIMIT $2 /* count */) h
    JOIN recipients r ON r.id = h.recipient_id AND r.company_id = h.company_id
    WHERE r.id NOT IN (SELECT id FROM free_recipients)
),

-- free are the imports to be written.
free AS (
    SELECT * FROM held WHERE (recipient_id = ANY (ARRAY(SELECT id FROM locked_recipients))) IS NOT TRUE
),

-- updates has what the imports say about their recipients. A dead-lettered one says nothing.
updates AS (
    SELECT recipient_id, company_id, id, payload ->> 'externalId' AS external_id, payload ->> 'cpfCnpjHash' AS cpf_cnpj_hash, cpf_cnpj_enc,
           payload ->> 'razaoSocial' AS razao_social, payload ->> 'nome' AS nome, payload ->> 'email' AS email, true AS states_email
    FROM free WHERE status <> 'FAILED'
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
      AND (/* newAddress */ excluded.intake_id > greatest('00000000-0000-0000-0000-000000000000'::uuid, recipients.deletion_id, CASE WHEN recipients.deleted_at IS NOT NULL THEN greatest(recipients.intake_id, first_id_at(recipients.deleted_at)) ELSE recipients.intake_id END) OR /* newExternalID */ coalesce(excluded.external_id_by > greatest('00000000-0000-0000-0000-000000000000'::uuid, recipients.deletion_id, CASE WHEN recipients.deleted_at IS NOT NULL THEN greatest(recipients.intake_id, first_id_at(recipients.deleted_at)) WHEN recipients.external_id IS NULL THEN NULL WHEN recipients.merged_by = recipients.intake_id THEN recipients.external_id_by ELSE recipients.intake_id END), false) OR /* newNumber */ coalesce(excluded.cpf_cnpj_by > greatest('00000000-0000-0000-0000-000000000000'::uuid, recipients.deletion_id, CASE WHEN recipients.deleted_at IS NOT NULL THEN greatest(recipients.intake_id, first_id_at(recipients.deleted_at)) WHEN recipients.cpf_cnpj_hash IS NULL THEN NULL WHEN recipients.merged_by = recipients.intake_id THEN recipients.cpf_cnpj_by ELSE recipients.intake_id END), false) OR /* missingEncrypted */ coalesce(recipients.deleted_at IS NULL AND recipients.cpf_cnpj_hash = excluded.cpf_cnpj_hash AND recipients.cpf_cnpj_enc IS NULL AND excluded.cpf_cnpj_enc IS NOT NULL AND excluded.cpf_cnpj_enc_by > greatest('00000000-0000-0000-0000-000000000000'::uuid, recipients.deletion_id, CASE WHEN recipients.deleted_at IS NOT NULL THEN greatest(recipients.intake_id, first_id_at(recipients.deleted_at)) END), false) OR /* newRazaoSocial */ coalesce(excluded.razao_social_by > greatest('00000000-0000-0000-0000-000000000000'::uuid, recipients.deletion_id, CASE WHEN recipients.deleted_at IS NOT NULL THEN greatest(recipients.intake_id, first_id_at(recipients.deleted_at)) WHEN recipients.razao_social IS NULL THEN NULL WHEN recipients.merged_by = recipients.intake_id THEN recipients.razao_social_by ELSE recipients.intake_id END), false) OR /* newNome */ coalesce(excluded.nome_by > greatest('00000000-0000-0000-0000-000000000000'::uuid, recipients.deletion_id, CASE WHEN recipients.deleted_at IS NOT NULL THEN greatest(recipients.intake_id, first_id_at(recipients.deleted_at)) WHEN recipients.nome IS NULL THEN NULL WHEN recipients.merged_by = recipients.intake_id THEN recipients.nome_by ELSE recipients.intake_id END), false))
),

-- arrived deletes the marks of the imports (by primary key of recipient_intakes).
arrived AS (
    DELETE FROM recipient_intakes i USING free f
    WHERE i.recipient_id = f.recipient_id AND i.outbox_id = f.id
),

-- emptied deletes the encrypted number from the outbox rows (by primary key, locked by held).
emptied AS (
    UPDATE email_outbox o SET cpf_cnpj_enc = NULL
    FROM free f WHERE o.id = f.id AND f.status <> 'FAILED' AND f.cpf_cnpj_enc IS NOT NULL
)

-- The imports that exist (by primary key of email_outbox, no lock).
SELECT o.id, o.id IN (SELECT id FROM free) AS written
FROM (SELECT * FROM unnest($3::uuid[]) AS t(id) LIMIT $2 /* count */) t
JOIN email_outbox o ON o.id = t.id AND o.target = 'recipients.upsert'
