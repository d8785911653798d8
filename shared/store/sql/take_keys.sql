-- Generated from take_keys.sql.tmpl and Go's description of the parameters by go generate: do not edit.
--
-- Takes the keys of the aggregates and event types of a batch's emails, and returns for each email whose the key is: its
-- own id, or that of an earlier email. No two emails have the same key.
--
-- email_gateway_take_key reads and inserts by outbox_aggregates_pkey, and writes the rows of cancelled emails that are replaced,
-- by primary key. It waits for another transaction that has inserted the same key, is retrying such an email, or holds the email of the key, until the
-- lock_timeout of this transaction. The keys are taken in sorted order, so that two batches with the
-- same keys cannot deadlock: the ORDER BY of a subquery is applied before the function is called.
--
-- Parameters; from $2 on, each array has one element per row:
--   $1   company_id           uuid
--   $2   id                   uuid[]
--   $3   aggregate_type       text[]
--   $4   aggregate_id         text[]
--   $5   event_type           text[]
--
-- EXPLAIN EXECUTE take_keys ('00000000-0000-0000-0000-000000000000', '{}', '{}', '{}', '{}');
SELECT t.id AS newcomer, email_gateway_take_key($1 /* company_id */, t.aggregate_type, t.aggregate_id, t.event_type, t.id) AS holder
FROM (SELECT * FROM unnest($2::uuid[], $3::text[], $4::text[], $5::text[]) AS t(id, aggregate_type, aggregate_id, event_type) ORDER BY aggregate_type, aggregate_id, event_type) t
