-- What the open transactions of programs delay.
--
-- A cancel or reschedule that has waited for a transaction which replaced the email now continues with the other one. An enqueue waits
-- for a transaction that is cancelling or rescheduling the email which has its key. A suspended company's programs are refused. The
-- functions read one partition of the logs instead of locking all of them until the transaction ends.
--
-- Folding quotas and reading their use skip the deltas that are folded, however long a transaction keeps the deleted rows: the totals
-- store the snapshot in which they were folded last. The daily quotas reset at midnight UTC in any time zone of the server.
--
-- Programs of the previous release call the same functions. Its dispatchers fold without the new column; until they stop, a fold of
-- this release reads more rows than it needs.

-- +goose Up

SET LOCAL lock_timeout = '3s';

-- All deltas that are visible in this snapshot are in the totals. NULL = not folded by this release yet.
ALTER TABLE quota_totals ADD COLUMN folded pg_snapshot;

-- +goose StatementBegin
-- The status of an email, by the primary keys of outbox and log; NULL = it is deleted. The log is read by EXECUTE, which is planned with
-- the id: another plan would lock every partition, and its indexes, until the end of the caller's transaction.
CREATE OR REPLACE FUNCTION email_gateway_status(id uuid) RETURNS text
LANGUAGE plpgsql SET search_path = pg_catalog, public, pg_temp SET standard_conforming_strings = on AS $$
DECLARE
    state text;
BEGIN
    SELECT o.status INTO state FROM email_outbox o WHERE o.id = email_gateway_status.id;
    IF NOT FOUND THEN
        EXECUTE 'SELECT l.status FROM email_logs l WHERE l.outbox_id = $1' INTO state USING id;
    END IF;
    RETURN state;
END
$$;
-- +goose StatementEnd

-- +goose StatementBegin
-- The last event of an email as the calling statement began, read as in email_gateway_status. No row: the email has no log.
CREATE FUNCTION email_gateway_last_event(id uuid) RETURNS TABLE (event_seq integer, last_event text)
LANGUAGE plpgsql STABLE ROWS 1 SET search_path = pg_catalog, public, pg_temp SET standard_conforming_strings = on AS $$
BEGIN
    RETURN QUERY EXECUTE 'SELECT l.event_seq, l.last_event FROM email_logs l WHERE l.outbox_id = $1' USING id;
END
$$;
-- +goose StatementEnd

-- +goose StatementBegin
-- Waits for the end of a transaction that holds the email (email_gateway_hold), and keeps no lock: callers that repeat an enqueue and
-- then reschedule the email would otherwise wait for each other.
CREATE FUNCTION email_gateway_await(id uuid) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, public, pg_temp SET standard_conforming_strings = on AS $$
BEGIN
    PERFORM FROM outbox_aggregates a WHERE a.outbox_id = email_gateway_await.id FOR SHARE;
    IF current_setting('transaction_isolation') <> 'read committed' THEN
        -- The transaction's snapshot does not see what the other one has committed: 40001 if that changed the email.
        PERFORM FROM email_outbox o WHERE o.id = email_gateway_await.id FOR SHARE;
    END IF;
    RAISE EXCEPTION 'awaited' USING ERRCODE = 'EG001'; -- what is rolled back is unlocked
EXCEPTION WHEN SQLSTATE 'EG001' THEN
    RETURN;
END
$$;
-- +goose StatementEnd

-- +goose StatementBegin
-- Refuses to write emails of a suspended company: its resume would send them.
CREATE FUNCTION email_gateway_check_active(company uuid) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, public, pg_temp SET standard_conforming_strings = on AS $$
BEGIN
    IF EXISTS (SELECT FROM companies c WHERE c.id = company AND c.suspended_at IS NOT NULL) THEN
        RAISE EXCEPTION 'company % is suspended', company USING ERRCODE = 'EG403';
    END IF;
END
$$;
-- +goose StatementEnd
REVOKE ALL ON FUNCTION email_gateway_last_event(uuid), email_gateway_await(uuid), email_gateway_check_active(uuid) FROM PUBLIC;

-- +goose StatementBegin
-- Takes the key for the email newcomer, unless an email that is not cancelled has it, and returns the email that has it now.
-- An email whose rows are deleted has returned its key. A call for the same key, and a retry of the cancelled email that has
-- it, wait for the end of this transaction. All is looked up by primary key.
--
-- A transaction that cancels or reschedules the email of the key is waited for. It has locked the email's row, whose xmax is 0 as long
-- as no transaction ever did: most repetitions of an enqueue read this and write nothing. The others lock and unlock the row, which
-- takes some 0.3 ms instead of 0.1, and writes a WAL record.
CREATE OR REPLACE FUNCTION email_gateway_take_key(company uuid, aggregate_type text, aggregate_id text, event_type text, newcomer uuid) RETURNS uuid
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp SET standard_conforming_strings = on AS $$
DECLARE
    newest record;
    state text;
    awaited uuid;
BEGIN
    LOOP
        SELECT a.outbox_id, a.turn, a.xmax <> '0' AS locked INTO newest FROM outbox_aggregates a
        WHERE a.company_id = company AND a.aggregate_type = email_gateway_take_key.aggregate_type
          AND a.aggregate_id = email_gateway_take_key.aggregate_id AND a.event_type = email_gateway_take_key.event_type
        ORDER BY a.turn DESC LIMIT 1;
        state := email_gateway_status(newest.outbox_id);
        IF newest.outbox_id <> newcomer AND newest.locked AND awaited IS DISTINCT FROM newest.outbox_id
           AND state IN ('PENDING', 'ENQUEUED', 'RETRY_SCHEDULED') THEN
            awaited := newest.outbox_id;
            PERFORM email_gateway_await(awaited);
            CONTINUE;
        END IF;
        IF newest.outbox_id = newcomer OR state <> 'CANCELLED' THEN
            RETURN newest.outbox_id; -- newcomer: by a run of the caller's statement whose answer was lost
        END IF;
        UPDATE email_outbox o SET replaced_at = coalesce(o.replaced_at, now()) WHERE o.id = newest.outbox_id AND o.status = 'CANCELLED';
        IF NOT FOUND AND EXISTS (SELECT FROM email_outbox o WHERE o.id = newest.outbox_id) THEN
            CONTINUE; -- a retry was first, and its commit is seen now
        END IF;
        INSERT INTO outbox_aggregates (company_id, aggregate_type, aggregate_id, event_type, turn, outbox_id)
        VALUES (company, email_gateway_take_key.aggregate_type, email_gateway_take_key.aggregate_id, email_gateway_take_key.event_type,
                coalesce(newest.turn, 0) + 1, newcomer)
        ON CONFLICT DO NOTHING;
        IF FOUND THEN
            RETURN newcomer;
        END IF; -- else another transaction's commit was first, and is seen now
    END LOOP;
END
$$;
-- +goose StatementEnd

-- +goose StatementBegin
-- Moves an email to another time, in the caller's transaction; a time that has passed, and NULL, is now. moved = false: it is too late,
-- status says why. No row: there is no such email.
CREATE OR REPLACE FUNCTION email_gateway_reschedule(
    company uuid, aggregate_type text, aggregate_id text, event_type text, send_at timestamptz, ttl interval DEFAULT '24 hours'
) RETURNS TABLE (outbox_id uuid, moved boolean, status text)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp SET standard_conforming_strings = on AS $$
DECLARE
    moment CONSTANT timestamptz := clock_timestamp();
    mail uuid;
    held boolean;
    tried uuid;
BEGIN
    PERFORM email_gateway_admit(company);
    PERFORM email_gateway_check_times(send_at, ttl);
    PERFORM email_gateway_check_active(company);
    LOOP
        SELECT a.outbox_id INTO mail FROM outbox_aggregates a
        WHERE a.company_id = company AND a.aggregate_type = email_gateway_reschedule.aggregate_type
          AND a.aggregate_id = email_gateway_reschedule.aggregate_id AND a.event_type = email_gateway_reschedule.event_type
        ORDER BY a.turn DESC LIMIT 1;
        IF NOT FOUND THEN
            RETURN;
        END IF;
        EXIT WHEN mail = tried;
        held := email_gateway_hold(mail);
        EXIT WHEN held;
        tried := mail; -- the transaction that was waited for may have replaced it
    END LOOP;
    IF held THEN
        INSERT INTO quota_deltas (company_id, transaction_writes) VALUES (company, email_gateway_transaction_writes(company) + 1);
        PERFORM email_gateway_schedule(company, mail, send_at);
        PERFORM email_gateway_move(mail, moment, greatest(moment, send_at), ttl);
    END IF;
    RETURN QUERY SELECT mail, held, email_gateway_status(mail);
END
$$;
-- +goose StatementEnd

-- +goose StatementBegin
-- Withdraws the emails about an aggregate, or the one of an event type, in the caller's transaction. cancelled = false: it is too late
-- for this one, status says why.
CREATE OR REPLACE FUNCTION email_gateway_cancel(company uuid, aggregate_type text, aggregate_id text, event_type text DEFAULT NULL)
RETURNS TABLE (outbox_id uuid, event text, cancelled boolean, status text)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp SET standard_conforming_strings = on AS $$
DECLARE
    mail uuid;
    visited uuid[] := '{}';
BEGIN
    PERFORM email_gateway_admit(company);
    LOOP
        FOR mail IN
            SELECT n.outbox_id FROM (
                SELECT DISTINCT ON (a.event_type) a.outbox_id FROM outbox_aggregates a
                WHERE a.company_id = company AND a.aggregate_type = email_gateway_cancel.aggregate_type AND a.aggregate_id = email_gateway_cancel.aggregate_id
                  AND (email_gateway_cancel.event_type IS NULL OR a.event_type = email_gateway_cancel.event_type)
                ORDER BY a.event_type, a.turn DESC
            ) n WHERE n.outbox_id <> ALL (visited) ORDER BY n.outbox_id -- as all callers lock them
        LOOP
            visited := visited || mail;
            IF email_gateway_hold(mail) THEN
                INSERT INTO quota_deltas (company_id, transaction_writes) VALUES (company, email_gateway_transaction_writes(company) + 1);
                PERFORM email_gateway_withdraw(mail);
            END IF;
        END LOOP;
        EXIT WHEN NOT FOUND; -- else transactions that were waited for may have added emails
    END LOOP;
    RETURN QUERY
        SELECT n.outbox_id, n.event_type, coalesce(s = 'CANCELLED', false), s FROM (
            SELECT DISTINCT ON (a.event_type) a.outbox_id, a.event_type FROM outbox_aggregates a
            WHERE a.company_id = company AND a.aggregate_type = email_gateway_cancel.aggregate_type AND a.aggregate_id = email_gateway_cancel.aggregate_id
              AND a.outbox_id = ANY (visited)
            ORDER BY a.event_type, a.turn DESC
        ) n CROSS JOIN LATERAL email_gateway_status(n.outbox_id) s ORDER BY n.outbox_id;
END
$$;
-- +goose StatementEnd

-- +goose StatementBegin
-- Adds the events that a statement has inserted to the feed, by company. An email's company is that of its outbox row, found by primary
-- key. Only the events of emails whose outbox row is deleted, such as late feedback, are read from the logs, whose partitions are
-- locked until the end of the transaction.
CREATE OR REPLACE FUNCTION email_gateway_feed_events() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp SET standard_conforming_strings = on SET enable_seqscan = off AS $$
DECLARE
    deleted bigint;
BEGIN
    WITH one AS MATERIALIZED (
        SELECT a.*, (SELECT o.company_id FROM email_outbox o WHERE o.id = a.email_log_id) AS company_id
        FROM (
            SELECT email_log_id, min(seq) AS first, max(seq) AS last, count(*) FILTER (WHERE type = 'SENT') AS sent,
                   count(*) FILTER (WHERE type IN ('DELIVERED', 'BOUNCED', 'COMPLAINED')) AS reported
            FROM added GROUP BY email_log_id
        ) a
    ), fed AS (
        INSERT INTO event_feed (company_id, email_ids, first_seqs, last_seqs, sent, reported)
        SELECT company_id, array_agg(email_log_id), array_agg(first), array_agg(last), sum(sent), nullif(sum(reported), 0)
        FROM one WHERE company_id IS NOT NULL GROUP BY company_id
    )
    SELECT count(*) INTO deleted FROM one WHERE company_id IS NULL;
    IF deleted = 0 THEN
        RETURN NULL;
    END IF;
    INSERT INTO event_feed (company_id, email_ids, first_seqs, last_seqs, sent, reported)
    SELECT company_id, array_agg(email_log_id), array_agg(first), array_agg(last), sum(sent), nullif(sum(reported), 0)
    FROM (
        SELECT email_log_id, first, last, sent, reported,
            (SELECT l.company_id FROM email_logs l WHERE l.outbox_id BETWEEN email_log_id AND email_log_id ORDER BY l.outbox_id LIMIT 1) AS company_id
        FROM (
            SELECT email_log_id, min(seq) AS first, max(seq) AS last, count(*) FILTER (WHERE type = 'SENT') AS sent,
                   count(*) FILTER (WHERE type IN ('DELIVERED', 'BOUNCED', 'COMPLAINED')) AS reported
            FROM added a WHERE NOT EXISTS (SELECT FROM email_outbox o WHERE o.id = a.email_log_id) GROUP BY email_log_id
        ) one
    ) of_company
    WHERE company_id IS NOT NULL GROUP BY company_id;
    RETURN NULL;
END
$$;
-- +goose StatementEnd

-- Single lines of the other functions are changed by their text.
--
-- email_gateway_use: what the last fold did not see was written by transactions that were open then, or began later. A database restored
-- from a dump may have a later snapshot than its own, which is not used.
-- +goose StatementBegin
DO $do$
DECLARE
    change record;
    was text;
BEGIN
    FOR change IN VALUES
        ('email_gateway_enqueue(uuid, text, text, text, jsonb, timestamptz, interval, text)',
         '    PERFORM email_gateway_check_times(send_at, ttl);
',
         '    PERFORM email_gateway_check_times(send_at, ttl);
    PERFORM email_gateway_check_active(company);
'),
        ('email_gateway_withdraw(uuid)',
         'LEFT JOIN email_logs l ON l.outbox_id = m.id',
         'LEFT JOIN LATERAL email_gateway_last_event(m.id) l ON true'),
        ('email_gateway_move(uuid, timestamptz, timestamptz, interval)',
         'LEFT JOIN email_logs l ON l.outbox_id = m.id',
         'LEFT JOIN LATERAL email_gateway_last_event(m.id) l ON true'),
        ('email_gateway_use(uuid, boolean)',
         'date_trunc(''day'', now(), ''UTC'') + interval ''1 day'' AS over',
         '((now() AT TIME ZONE ''UTC'')::date + 1)::timestamp AT TIME ZONE ''UTC'' AS over'),
        ('email_gateway_use(uuid, boolean)',
         '            FROM quota_deltas d WHERE d.company_id = company
              AND d.xid >= CASE WHEN t.folded_before <= pg_snapshot_xmin(pg_current_snapshot()) THEN t.folded_before ELSE ''0'' END) d
',
         '            FROM (
                SELECT n.* FROM quota_deltas n
                WHERE n.company_id = company AND n.xid >= CASE WHEN pg_snapshot_xmax(t.folded) <= pg_snapshot_xmax(pg_current_snapshot()) THEN pg_snapshot_xmax(t.folded) ELSE ''0'' END
                UNION ALL
                SELECT n.* FROM pg_snapshot_xip(t.folded) x (xid)
                CROSS JOIN LATERAL (SELECT * FROM quota_deltas n WHERE n.company_id = company AND n.xid = x.xid OFFSET 0) n -- no join, which would read all of the company
                WHERE pg_snapshot_xmax(t.folded) <= pg_snapshot_xmax(pg_current_snapshot())
            ) d
        ) d
')
    LOOP
        was := pg_get_functiondef(change.column1::regprocedure);
        IF strpos(was, change.column2) = 0 THEN
            RAISE EXCEPTION '% does not contain: %', change.column1, change.column2;
        END IF;
        EXECUTE replace(was, change.column2, change.column3);
    END LOOP;
END
$do$;
-- +goose StatementEnd

-- +goose Down

SET LOCAL lock_timeout = '3s';

-- +goose StatementBegin
DO $do$
DECLARE
    change record;
    was text;
BEGIN
    FOR change IN VALUES
        ('email_gateway_enqueue(uuid, text, text, text, jsonb, timestamptz, interval, text)',
         '    PERFORM email_gateway_check_times(send_at, ttl);
    PERFORM email_gateway_check_active(company);
',
         '    PERFORM email_gateway_check_times(send_at, ttl);
'),
        ('email_gateway_withdraw(uuid)',
         'LEFT JOIN LATERAL email_gateway_last_event(m.id) l ON true',
         'LEFT JOIN email_logs l ON l.outbox_id = m.id'),
        ('email_gateway_move(uuid, timestamptz, timestamptz, interval)',
         'LEFT JOIN LATERAL email_gateway_last_event(m.id) l ON true',
         'LEFT JOIN email_logs l ON l.outbox_id = m.id'),
        ('email_gateway_use(uuid, boolean)',
         '((now() AT TIME ZONE ''UTC'')::date + 1)::timestamp AT TIME ZONE ''UTC'' AS over',
         'date_trunc(''day'', now(), ''UTC'') + interval ''1 day'' AS over'),
        ('email_gateway_use(uuid, boolean)',
         '            FROM (
                SELECT n.* FROM quota_deltas n
                WHERE n.company_id = company AND n.xid >= CASE WHEN pg_snapshot_xmax(t.folded) <= pg_snapshot_xmax(pg_current_snapshot()) THEN pg_snapshot_xmax(t.folded) ELSE ''0'' END
                UNION ALL
                SELECT n.* FROM pg_snapshot_xip(t.folded) x (xid)
                CROSS JOIN LATERAL (SELECT * FROM quota_deltas n WHERE n.company_id = company AND n.xid = x.xid OFFSET 0) n -- no join, which would read all of the company
                WHERE pg_snapshot_xmax(t.folded) <= pg_snapshot_xmax(pg_current_snapshot())
            ) d
        ) d
',
         '            FROM quota_deltas d WHERE d.company_id = company
              AND d.xid >= CASE WHEN t.folded_before <= pg_snapshot_xmin(pg_current_snapshot()) THEN t.folded_before ELSE ''0'' END) d
')
    LOOP
        was := pg_get_functiondef(change.column1::regprocedure);
        IF strpos(was, change.column2) = 0 THEN
            RAISE EXCEPTION '% does not contain: %', change.column1, change.column2;
        END IF;
        EXECUTE replace(was, change.column2, change.column3);
    END LOOP;
END
$do$;
-- +goose StatementEnd

-- +goose StatementBegin
CREATE OR REPLACE FUNCTION email_gateway_feed_events() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp SET standard_conforming_strings = on SET enable_seqscan = off AS $$
BEGIN
    INSERT INTO event_feed (company_id, email_ids, first_seqs, last_seqs, sent, reported)
    SELECT company_id, array_agg(email_log_id), array_agg(first), array_agg(last), sum(sent), nullif(sum(reported), 0)
    FROM (
        SELECT email_log_id, first, last, sent, reported,
            (SELECT l.company_id FROM email_logs l WHERE l.outbox_id BETWEEN email_log_id AND email_log_id ORDER BY l.outbox_id LIMIT 1) AS company_id
        FROM (
            SELECT email_log_id, min(seq) AS first, max(seq) AS last, count(*) FILTER (WHERE type = 'SENT') AS sent,
                   count(*) FILTER (WHERE type IN ('DELIVERED', 'BOUNCED', 'COMPLAINED')) AS reported
            FROM added GROUP BY email_log_id
        ) one
    ) of_company
    WHERE company_id IS NOT NULL GROUP BY company_id;
    RETURN NULL;
END
$$;
-- +goose StatementEnd

-- +goose StatementBegin
-- Withdraws the emails about an aggregate, or the one of an event type, in the caller's transaction. cancelled = false: it is too late
-- for this one, status says why.
CREATE OR REPLACE FUNCTION email_gateway_cancel(company uuid, aggregate_type text, aggregate_id text, event_type text DEFAULT NULL)
RETURNS TABLE (outbox_id uuid, event text, cancelled boolean, status text)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp SET standard_conforming_strings = on AS $$
DECLARE
    newest record;
BEGIN
    PERFORM email_gateway_admit(company);
    FOR newest IN
        SELECT n.* FROM (
            SELECT DISTINCT ON (a.event_type) a.outbox_id, a.event_type FROM outbox_aggregates a
            WHERE a.company_id = company AND a.aggregate_type = email_gateway_cancel.aggregate_type AND a.aggregate_id = email_gateway_cancel.aggregate_id
              AND (email_gateway_cancel.event_type IS NULL OR a.event_type = email_gateway_cancel.event_type)
            ORDER BY a.event_type, a.turn DESC
        ) n ORDER BY n.outbox_id -- as everybody locks them
    LOOP
        IF email_gateway_hold(newest.outbox_id) THEN
            INSERT INTO quota_deltas (company_id, transaction_writes) VALUES (company, email_gateway_transaction_writes(company) + 1);
            PERFORM email_gateway_withdraw(newest.outbox_id);
        END IF;
        RETURN QUERY SELECT newest.outbox_id, newest.event_type, coalesce(s = 'CANCELLED', false), s FROM email_gateway_status(newest.outbox_id) s;
    END LOOP;
END
$$;
-- +goose StatementEnd

-- +goose StatementBegin
-- Moves an email to another time, in the caller's transaction; a time that has passed, and NULL, is now. moved = false: it is too late,
-- status says why. No row: there is no such email.
CREATE OR REPLACE FUNCTION email_gateway_reschedule(
    company uuid, aggregate_type text, aggregate_id text, event_type text, send_at timestamptz, ttl interval DEFAULT '24 hours'
) RETURNS TABLE (outbox_id uuid, moved boolean, status text)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp SET standard_conforming_strings = on AS $$
DECLARE
    moment CONSTANT timestamptz := clock_timestamp();
    mail uuid;
    held boolean;
BEGIN
    PERFORM email_gateway_admit(company);
    PERFORM email_gateway_check_times(send_at, ttl);
    SELECT a.outbox_id INTO mail FROM outbox_aggregates a
    WHERE a.company_id = company AND a.aggregate_type = email_gateway_reschedule.aggregate_type
      AND a.aggregate_id = email_gateway_reschedule.aggregate_id AND a.event_type = email_gateway_reschedule.event_type
    ORDER BY a.turn DESC LIMIT 1;
    IF NOT FOUND THEN
        RETURN;
    END IF;
    held := email_gateway_hold(mail);
    IF held THEN
        INSERT INTO quota_deltas (company_id, transaction_writes) VALUES (company, email_gateway_transaction_writes(company) + 1);
        PERFORM email_gateway_schedule(company, mail, send_at);
        PERFORM email_gateway_move(mail, moment, greatest(moment, send_at), ttl);
    END IF;
    RETURN QUERY SELECT mail, held, email_gateway_status(mail);
END
$$;
-- +goose StatementEnd

-- +goose StatementBegin
-- Takes the key for the email newcomer, unless an email that is not cancelled has it, and returns the email that has it now.
-- An email whose rows are deleted has returned its key. A call for the same key, and a retry of the cancelled email that has
-- it, wait for the end of this transaction. All is looked up by primary key.
CREATE OR REPLACE FUNCTION email_gateway_take_key(company uuid, aggregate_type text, aggregate_id text, event_type text, newcomer uuid) RETURNS uuid
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp SET standard_conforming_strings = on AS $$
DECLARE
    newest outbox_aggregates;
BEGIN
    LOOP
        SELECT * INTO newest FROM outbox_aggregates a
        WHERE a.company_id = company AND a.aggregate_type = email_gateway_take_key.aggregate_type
          AND a.aggregate_id = email_gateway_take_key.aggregate_id AND a.event_type = email_gateway_take_key.event_type
        ORDER BY a.turn DESC LIMIT 1;
        IF newest.outbox_id = newcomer OR email_gateway_status(newest.outbox_id) <> 'CANCELLED' THEN
            RETURN newest.outbox_id; -- newcomer: by a run of the caller's statement whose answer was lost
        END IF;
        UPDATE email_outbox o SET replaced_at = coalesce(o.replaced_at, now()) WHERE o.id = newest.outbox_id AND o.status = 'CANCELLED';
        IF NOT FOUND AND EXISTS (SELECT FROM email_outbox o WHERE o.id = newest.outbox_id) THEN
            CONTINUE; -- a retry was first, and its commit is seen now
        END IF;
        INSERT INTO outbox_aggregates (company_id, aggregate_type, aggregate_id, event_type, turn, outbox_id)
        VALUES (company, email_gateway_take_key.aggregate_type, email_gateway_take_key.aggregate_id, email_gateway_take_key.event_type,
                coalesce(newest.turn, 0) + 1, newcomer)
        ON CONFLICT DO NOTHING;
        IF FOUND THEN
            RETURN newcomer;
        END IF; -- else another transaction's commit was first, and is seen now
    END LOOP;
END
$$;
-- +goose StatementEnd

-- +goose StatementBegin
CREATE OR REPLACE FUNCTION email_gateway_status(id uuid) RETURNS text
LANGUAGE sql VOLATILE SET search_path = pg_catalog, public, pg_temp SET standard_conforming_strings = on AS $$
    SELECT coalesce((SELECT o.status FROM email_outbox o WHERE o.id = email_gateway_status.id),
                    (SELECT l.status FROM email_logs l WHERE l.outbox_id = email_gateway_status.id))
$$;
-- +goose StatementEnd

DROP FUNCTION email_gateway_last_event(uuid), email_gateway_await(uuid), email_gateway_check_active(uuid);
ALTER TABLE quota_totals DROP COLUMN folded;
