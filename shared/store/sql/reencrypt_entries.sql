-- Generated from reencrypt.sql.tmpl and Go's description of the parameters by go generate: do not edit.
--
-- Writes the newly encrypted numbers of rows of mailing_entries that hold what was read. It locks the rows by primary key.
--
-- Parameters; from $1 on, each array has one element per row:
--   $1   id                   uuid[]
--   $2   was                  bytea[]
--   $3   now                  bytea[]
--
-- EXPLAIN EXECUTE reencrypt_entries ('{}', '{}', '{}');
UPDATE mailing_entries r SET cpf_cnpj_enc = t.now
FROM unnest($1::uuid[], $2::bytea[], $3::bytea[]) AS t(id, was, now) WHERE r.id = t.id AND r.cpf_cnpj_enc = t.was
