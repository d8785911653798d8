-- Generated from set_reputation_defaults.sql.tmpl and Go's description of the parameters by go generate: do not edit.
--
-- Sets the defaults of the reputation guard. It locks only the rows that differ, by primary key.
--
-- Parameters; from $2 on, each array has one element per row:
--   $1   enabled              bool
--   $2   rule                 text[]
--   $3   warn                 bigint[]
--   $4   pause                bigint[]
--   $5   sent                 bigint[]
--   $6   events               bigint[]
--
-- EXPLAIN EXECUTE set_reputation_defaults (false, '{}', '{}', '{}', '{}', '{}');
WITH
-- guard writes the only row of reputation_guard.
guard AS (
    UPDATE reputation_guard SET enabled = $1 /* enabled */ WHERE enabled <> $1 /* enabled */
)
UPDATE reputation_defaults d SET warn_ppm = t.warn, pause_ppm = t.pause, min_sent = t.sent, min_events = t.events
FROM unnest(
    $2::text[],   -- rule
    $3::bigint[], -- warn
    $4::bigint[], -- pause
    $5::bigint[], -- sent
    $6::bigint[]  -- events
) AS t(rule, warn, pause, sent, events)
WHERE d.rule = t.rule AND (d.warn_ppm, d.pause_ppm, d.min_sent, d.min_events) IS DISTINCT FROM (t.warn, t.pause, t.sent, t.events)
