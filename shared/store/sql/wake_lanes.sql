-- Generated from wake_lanes.sql.tmpl and Go's description of the parameters by go generate: do not edit.
--
-- Notifies the dispatchers of lanes, which it finds by dispatch_lanes_company_id_queue_mailing_id_key. It locks nothing. If it
-- finds no lane, or too many, the payload is empty, which means all lanes.
--
-- Parameters; from $4 on, each array has one element per row:
--   $1   channel              text
--   $2   most                 integer
--   $3   count                bigint
--   $4   company_id           uuid[]
--   $5   queue                text[]
--   $6   mailing_id           uuid[]
--
-- EXPLAIN EXECUTE wake_lanes ('0', 0, 0, '{}', '{}', '{}');
SELECT pg_notify($1 /* channel */, coalesce((
    SELECT CASE WHEN count(*) <= $2 /* most */ THEN string_agg(named.id::text, ',') END FROM (
        SELECT l.id FROM (
            SELECT * FROM unnest($4::uuid[], $5::text[], $6::uuid[]) AS t(company_id, queue, mailing_id) LIMIT $3 /* count */
        ) wanted
        JOIN dispatch_lanes l ON l.company_id = wanted.company_id
            AND CASE WHEN wanted.queue = '' THEN true
                     ELSE l.queue = wanted.queue AND coalesce(l.mailing_id, '00000000-0000-0000-0000-000000000000') = wanted.mailing_id END
        LIMIT $2 /* most */ + 1) named), ''))
