-- Generated from with_events.sql.tmpl and Go's description of the parameters by go generate: do not edit.
--
-- Finds the companies that have events after a position: it reads at most one row of the feed per company, along
-- event_feed_position. The LIMIT keeps Postgres from reading the rows of all companies instead. It locks nothing.
--
-- Parameters; from $1 on, each array has one element per row:
--   $1   id                   uuid[]
--   $2   position             bigint[]
--
-- EXPLAIN EXECUTE with_events ('{}', '{}');
SELECT t.id FROM unnest($1::uuid[], $2::bigint[]) AS t(id, position)
CROSS JOIN LATERAL (SELECT FROM event_feed f WHERE f.company_id = t.id AND f.position > t.position ORDER BY f.position LIMIT 1) newer
