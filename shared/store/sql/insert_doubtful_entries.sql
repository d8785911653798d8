-- Generated from insert_doubtful_entries.sql.tmpl and Go's description of the parameters by go generate: do not edit.
--
-- Inserts entries of a mailing whose addresses it may have already, and returns the ids of those inserted. The others
-- become rejects.
--
-- The entries are later lines than those that were copied before with the same address. None with such an address is
-- copied after them, because the address filter (internal/bloom) has no false negatives.
--
-- Parameters; from $4 on, each array has one element per row:
--   $1   mailing_id           uuid
--   $2   email_column         text
--   $3   code                 text
--   $4   id                   uuid[]
--   $5   line_no              bigint[]
--   $6   last_line            bigint[]
--   $7   email                text[]
--   $8   token                text[]
--   $9   status               text[]
--   $10  invalid_reason       text[]
--   $11  fields               text[]
--   $12  nome                 text[]
--   $13  razao_social         text[]
--   $14  recipient_external_id text[]
--   $15  cpf_cnpj_hash        text[]
--   $16  cpf_cnpj_enc         bytea[]
--   $17  empty_fields         text[]
--
-- EXPLAIN EXECUTE insert_doubtful_entries ('00000000-0000-0000-0000-000000000000', '0', '0', '{}', '{}', '{}', '{}', '{}', '{}', '{}', '{}', '{}', '{}', '{}', '{}', '{}', '{}');
WITH
-- input is the rows, read twice below.
input AS (
    SELECT * FROM unnest(
        $4::uuid[],   -- id
        $5::bigint[], -- line_no
        $6::bigint[], -- last_line
        $7::text[],   -- email
        $8::text[],   -- token
        $9::text[],   -- status
        $10::text[],  -- invalid_reason
        $11::text[],  -- fields
        $12::text[],  -- nome
        $13::text[],  -- razao_social
        $14::text[],  -- recipient_external_id
        $15::text[],  -- cpf_cnpj_hash
        $16::bytea[], -- cpf_cnpj_enc
        $17::text[]   -- empty_fields
    ) AS t(id, line_no, last_line, email, token, status, invalid_reason, fields, nome, razao_social,
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
    INSERT INTO mailing_rejects (mailing_id, line_no, last_line, column_name, code)
    SELECT $1 /* mailing_id */, line_no, CASE WHEN last_line > line_no THEN last_line END, nullif($2 /* email_column */, ''), $3 /* code */
    FROM input WHERE id NOT IN (SELECT id FROM kept)
)
SELECT id FROM kept
