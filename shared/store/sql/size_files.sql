-- Generated from size_files.sql.tmpl and Go's description of the parameters by go generate: do not edit.
--
-- Writes the sizes of the files of mailings (by primary key) whose size is not known: programs of the previous release do
-- not write it. It locks the rows that it writes.
--
-- Parameters; from $1 on, each array has one element per row:
--   $1   id                   uuid[]
--   $2   bytes                bigint[]
--
-- EXPLAIN EXECUTE size_files ('{}', '{}');
UPDATE mailings m SET file_bytes = t.bytes FROM unnest($1::uuid[], $2::bigint[]) AS t(id, bytes)
WHERE m.id = t.id AND m.file_bytes IS NULL AND NOT m.dry_run AND m.file_deleted_at IS NULL
