-- Generated from add_sends.sql.tmpl and Go's description of the parameters by go generate: do not edit.
--
-- Adds sent emails to the minutes of a company, by primary key. The lock on the company's row of company_reputation, which
-- the caller holds, protects them.
--
-- Parameters; from $2 on, each array has one element per row:
--   $1   company_id           uuid
--   $2   minute               timestamptz[]
--   $3   sent                 bigint[]
--
-- EXPLAIN EXECUTE add_sends ('00000000-0000-0000-0000-000000000000', '{}', '{}');
INSERT INTO reputation_sends AS s (company_id, minute, sent)
SELECT $1 /* company_id */, t.minute, t.sent FROM unnest($2::timestamptz[], $3::bigint[]) AS t(minute, sent) ORDER BY t.minute
ON CONFLICT (company_id, minute) DO UPDATE SET sent = s.sent + excluded.sent
