-- Generated from insert_rejects.sql.tmpl and Go's description of the parameters by go generate: do not edit.
--
-- Inserts lines of a file that are not entries of its mailing (by primary key of mailing_rejects).
--
-- Parameters; from $2 on, each array has one element per row:
--   $1   mailing_id           uuid
--   $2   line_no              bigint[]
--   $3   last_line            bigint[]
--   $4   column_name          text[]
--   $5   code                 text[]
--
-- EXPLAIN EXECUTE insert_rejects ('00000000-0000-0000-0000-000000000000', '{}', '{}', '{}', '{}');
INSERT INTO mailing_rejects (mailing_id, line_no, last_line, column_name, code)
SELECT $1 /* mailing_id */, t.line_no, CASE WHEN t.last_line > t.line_no THEN t.last_line END, nullif(t.column_name, ''), t.code
FROM unnest($2::bigint[], $3::bigint[], $4::text[], $5::text[]) AS t(line_no, last_line, column_name, code)
