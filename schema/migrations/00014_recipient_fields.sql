-- Statements about a person (imports, emails, entries of mailings, deletions) are applied
-- in any order, and per field the newest one wins. So a recipient says of each field which
-- statement set it. A statement is known by its UUIDv7, which sorts by the time of its
-- acceptance. The address has no column of its own: intake_id is the statement that set it.
--
-- Programs of the release before know intake_id alone and set it with every write: when it
-- differs from merged_by, one of them wrote last, and every field counts as set by intake_id.

-- +goose Up

-- A backup may use the table for hours; everything would queue up behind this lock.
SET LOCAL lock_timeout = '3s';

ALTER TABLE recipients
    ADD COLUMN external_id_by uuid,
    ADD COLUMN cpf_cnpj_by uuid,     -- the hash
    ADD COLUMN cpf_cnpj_enc_by uuid, -- the encrypted number, which may come with an older statement of the same hash
    ADD COLUMN razao_social_by uuid,
    ADD COLUMN nome_by uuid,
    ADD COLUMN merged_by uuid,       -- intake_id when the columns above were written
    ADD COLUMN deletion_id uuid;     -- the newest deletion: a statement accepted before it is void, also after the person came back

-- The first value that is not NULL, in the order of the input: a strict transition function
-- takes it as the state and is not called for NULL. Several statements about one person in
-- one batch are merged with it, at no cost for a person with a single one; array_agg with an
-- ORDER BY would sort once per column and person.
CREATE FUNCTION first_present_step(anyelement, anyelement) RETURNS anyelement
LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE AS 'SELECT $1';
CREATE AGGREGATE first_present(anyelement) (SFUNC = first_present_step, STYPE = anyelement, PARALLEL = SAFE);

-- +goose Down

DROP AGGREGATE first_present(anyelement);
DROP FUNCTION first_present_step(anyelement, anyelement);
ALTER TABLE recipients
    DROP COLUMN external_id_by, DROP COLUMN cpf_cnpj_by, DROP COLUMN cpf_cnpj_enc_by, DROP COLUMN razao_social_by, DROP COLUMN nome_by,
    DROP COLUMN merged_by, DROP COLUMN deletion_id;
