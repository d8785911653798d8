-- Generated from known_recipients.sql.tmpl and Go's description of the parameters by go generate: do not edit.
--
-- Finds which of the ids are recipients of the company, or about to be: by the primary keys of recipients and
-- recipient_intakes, without a lock.
--
-- Parameters; from $2 on, each array has one element per row:
--   $1   company_id           uuid
--   $2   id                   uuid[]
--
-- EXPLAIN EXECUTE known_recipients ('00000000-0000-0000-0000-000000000000', '{}');
SELECT t.id FROM unnest($2::uuid[]) AS t(id)
WHERE EXISTS (SELECT FROM recipients r WHERE r.id = t.id AND r.company_id = $1 /* company_id */ AND r.deleted_at IS NULL)
   OR EXISTS (SELECT FROM recipient_intakes i WHERE i.recipient_id = t.id AND i.company_id = $1 /* company_id */)
