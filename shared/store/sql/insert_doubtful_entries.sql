-- Generated from insert_doubtful_entries.sql.tmpl and Go's description of the parameters by go generate: do not edit.
--
-- Inserts entries of a mailing whose addresses it may have already, and returns the ids of those inserted. The others
-- become rejects.
--
-- The entries are later lines than those that were copied before with the same address. None with such an address is
-- copied after them, because the address filter (mailing/address_filter.go) has no false negatives.
--
-- Parameters; from $4 on, each array has one element per row:
--   $1   mailing_id           uuid
--   $2   email_column         text
--   $3   code                 text
--   $4   id                   uuid[]
--   $5   line_no              bigint[]
--   $6   email                text[]
--   $7   token                text[]
--   $8   status               text[]
--   $9   invalid_reason       text[]
--   $10  fields               text[]
--   $11  nome                 text[]
--   $12  razao_social         text[]
--   $13  recipient_external_id text[]
--   $14  cpf_cnpj_hash        text[]
--   $15  cpf_cnpj_enc         bytea[]
--   $16  empty_fields         text[]
--
-- EXPLAIN EXECUTE insert_doubtful_entries ('00000000-0000-0000-0000-000000000000', '0', '0', '{}', '{}', '{}', '{}', '{}', '{}', '{}', '{}', '{}', '{}', '{}', '{}', '{}');
WITH
-- input is the rows, read twice below.
input AS (
    SELECT * FROM unnest(
        $4::uuid[],   -- id
        $5::bigint[], -- line_no
        $6::text[],   -- email
        $7::text[],   -- token
        $8::text[],   -- status
        $9::text[],   -- invalid_reason
        $10::text[],  -- fields
        $11::text[],  -- nome
        $12::text[],  -- razao_social
        $13::text[],  -- recipient_external_id
        $14::text[],  -- cpf_cnpj_hash
        $15::bytea[], -- cpf_cnpj_enc
        $16::text[]   -- empty_fields
    ) AS t(id, line_no, email, token, status, invalid_reason, fields, nome, razao_social,
           recipient_external_id, cpf_cnpj_hash, cpf_cnpj_enc, empty_fields)
),

-- kept inserts the entries in the order of their lines, so that the first line with an address is the one that stays
-- (by mailing_entries_address).
kept AS (
    INSERT INTO mailing_entries (id, mailing_id, line_no, email, token, status, invalid_reason, fields,
                                 nome, razao_social, recipient_external_id, cpf_cnpj_hash, cpf_cnpj_enc, empty_fields)
    SELECT id, $1 /* mailing_id */, line_no, email, token, status, invalid_reason, fields::text[],
           nome, razao_social, recipient_external_id, cpf_cnpj_hash, cpf_cnpj_enc, empty_fields::text[]
    FROM input ORDER BY line_no
    ON CONFLICT (mailing_id, lower(email)) DO NOTHING
    RETURNING id
),

-- left_out inserts the duplicates into mailing_rejects.
left_out AS (
    INSERT INTO mailing_rejects (mailing_id, line_no, column_name, code)
    SELECT $1 /* mailing_id */, line_no, nullif($2 /* email_column */, ''), $3 /* code */ FROM input WHERE id NOT IN (SELECT id FROM kept)
)
SELECT id FROM kept
