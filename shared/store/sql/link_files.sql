-- Generated from link_files.sql.tmpl and Go's description of the parameters by go generate: do not edit.
--
-- Inserts the attachments of new emails or mailings. Each row locks its file by stored_files_company_id_id_key: the lock
-- conflicts with deletions only.
--
-- Parameters; from $2 on, each array has one element per row:
--   $1   company_id           uuid
--   $2   owner_id             uuid[]
--   $3   position             bigint[]
--   $4   file_id              uuid[]
--   $5   filename             text[]
--   $6   content_type         text[]
--   $7   content_id           text[]
--   $8   disposition          text[]
--
-- EXPLAIN EXECUTE link_files ('00000000-0000-0000-0000-000000000000', '{}', '{}', '{}', '{}', '{}', '{}', '{}');
INSERT INTO attachments (owner_id, position, company_id, file_id, filename, content_type, content_id, disposition)
SELECT owner_id, position, $1 /* company_id */, file_id, filename, content_type, nullif(content_id, ''), disposition
FROM unnest(
    $2::uuid[],   -- owner_id
    $3::bigint[], -- position
    $4::uuid[],   -- file_id
    $5::text[],   -- filename
    $6::text[],   -- content_type
    $7::text[],   -- content_id
    $8::text[]    -- disposition
) AS t(owner_id, position, file_id, filename, content_type, content_id, disposition)
