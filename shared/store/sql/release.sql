-- Generated from release.sql.tmpl and Go's description of the parameters by go generate: do not edit.
--
-- Returns rows of a batch to the outbox, as far as they are still as the batch left them, and returns how many another
-- transaction has locked: they stay as they are.
--
-- Parameters; from $2 on, each array has one element per row:
--   $1   taken_at             timestamptz
--   $2   id                   uuid[]
--   $3   delay_ms             bigint[]
--   $4   due_us               bigint[]
--
-- EXPLAIN EXECUTE release (now(), '{}', '{}', '{}');
WITH
-- taken finds the rows (by primary key, no lock) that are still enqueued as of taken_at.
taken AS MATERIALIZED (
    SELECT t.*, o.target FROM unnest($2::uuid[], $3::bigint[], $4::bigint[]) AS t(id, delay_ms, due_us)
    JOIN email_outbox o ON o.id = t.id
    WHERE o.status = CASE o.target WHEN 'email:send' THEN 'ENQUEUED' ELSE 'PENDING' END AND o.enqueued_at = $1 /* taken_at */
),

-- free locks those of them (by primary key) that no other transaction has locked.
free AS MATERIALIZED (
    SELECT t.* FROM taken t JOIN email_outbox o ON o.id = t.id
    WHERE o.status IN ('ENQUEUED', 'PENDING') AND o.enqueued_at = $1 /* taken_at */
    FOR UPDATE OF o SKIP LOCKED
),

-- released writes the locked rows. An email keeps its next_at. A leased job gets back the next_at from
-- before its lease (due_us).
released AS (
    UPDATE email_outbox o SET status = 'PENDING', enqueued_at = NULL,
        next_at = CASE WHEN f.delay_ms > 0 THEN now() + f.delay_ms * interval '1 ms'
                       WHEN f.target = 'email:send' THEN o.next_at
                       ELSE timestamptz 'epoch' + f.due_us * interval '1 microsecond' END
    FROM free f WHERE o.id = f.id AND o.status = CASE o.target WHEN 'email:send' THEN 'ENQUEUED' ELSE 'PENDING' END
    RETURNING o.id
)
SELECT (SELECT count(*) FROM taken) - (SELECT count(*) FROM free)
