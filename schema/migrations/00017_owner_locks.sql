-- Any role of the server may take any advisory lock. One that took ours stopped retention,
-- cancelled mailings and migrations without a word. These locks are rows now that only the
-- tables' owner can lock; the programs lock them through functions that do no more than that.
-- Migrations lock a table of their own, goose_migration_lock: schema/lock.go.

-- +goose Up

-- Nobody but the owner has a right on it, so nobody else can lock a row. A row that is gone
-- counts as locked.
CREATE TABLE owner_locks (
    name  text NOT NULL CHECK (name IN ('email_logs', 'email_events', 'settling')),
    slot  smallint NOT NULL DEFAULT 0 CHECK (slot BETWEEN 0 AND 255),
    PRIMARY KEY (name, slot)
);
INSERT INTO owner_locks (name) VALUES ('email_logs'), ('email_events');
INSERT INTO owner_locks (name, slot) SELECT 'settling', slot FROM generate_series(0, 255) AS slot;

-- +goose StatementBegin
-- Holds the round of a mailing whose entries are settled until the transaction ends; false
-- if another process has it, or that of a mailing with the same last byte in its id.
CREATE FUNCTION hold_settling(mailing uuid) RETURNS boolean
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp SET standard_conforming_strings = on AS $$
BEGIN
    PERFORM FROM owner_locks l WHERE l.name = 'settling' AND l.slot = get_byte(uuid_send(mailing), 15) FOR UPDATE SKIP LOCKED;
    RETURN FOUND;
END
$$;
-- +goose StatementEnd
REVOKE ALL ON FUNCTION hold_settling(uuid) FROM PUBLIC;

-- +goose StatementBegin
-- make_log_partition makes the first of the months from now on that the log has no
-- partition for, and returns its name; NULL if there is none. Rows of that month that
-- stand in the default partition move.
CREATE OR REPLACE FUNCTION make_log_partition(of_log text, months_ahead integer) RETURNS text
LANGUAGE plpgsql SECURITY DEFINER SET search_path = public, pg_temp SET lock_timeout = '200ms' SET standard_conforming_strings = on AS $$
DECLARE
    -- ATTACH reads the default partition from end to end, under a lock that everybody
    -- waits for. It is nearly empty, unless partitions were missing for long.
    most CONSTANT bigint := 64 * 1024 * 1024;
    rest CONSTANT text := of_log || '_default';
    key text := CASE of_log WHEN 'email_logs' THEN 'outbox_id' WHEN 'email_events' THEN 'email_log_id' END;
    month record;
BEGIN
    IF key IS NULL OR months_ahead NOT BETWEEN 0 AND 120 THEN
        RAISE EXCEPTION 'no partitions of % are made % months ahead', of_log, months_ahead;
    END IF;
    PERFORM FROM owner_locks l WHERE l.name = of_log AND l.slot = 0 FOR UPDATE SKIP LOCKED;
    IF NOT FOUND THEN
        RETURN NULL;
    END IF;
    SELECT of_log || to_char(m.utc, '"_"YYYY_MM') AS name, first_id_at(m.utc AT TIME ZONE 'UTC') AS first_id,
           first_id_at((m.utc + interval '1 month') AT TIME ZONE 'UTC') AS end_id INTO month
    FROM (SELECT date_trunc('month', now() AT TIME ZONE 'UTC') + n * interval '1 month' AS utc FROM generate_series(0, months_ahead) n) m
    WHERE NOT EXISTS (
        SELECT FROM log_partitions p
        WHERE p.log = of_log AND coalesce(p.first_id <= first_id_at(m.utc AT TIME ZONE 'UTC'), true) AND p.end_id > first_id_at(m.utc AT TIME ZONE 'UTC'))
    ORDER BY m.utc LIMIT 1;
    IF NOT FOUND THEN
        RETURN NULL;
    END IF;
    IF pg_relation_size(rest::regclass) > most THEN
        RAISE EXCEPTION '% cannot be made: % holds more than % bytes', month.name, rest, most;
    END IF;
    EXECUTE format('CREATE TABLE %I (LIKE %I INCLUDING ALL EXCLUDING INDEXES) WITH (fillfactor = %s)', month.name, of_log, CASE of_log WHEN 'email_logs' THEN 80 ELSE 100 END);
    -- ATTACH makes the indexes. The primary key comes first: while the partition is empty all
    -- of them seem equally good for finding a row by its id, and then the planner takes the
    -- oldest. Its plan is still in use when the month begins.
    EXECUTE format('ALTER TABLE %I ADD PRIMARY KEY (%s)', month.name, CASE of_log WHEN 'email_logs' THEN 'outbox_id' ELSE 'email_log_id, seq' END);
    EXECUTE format('LOCK TABLE %I IN ACCESS EXCLUSIVE MODE', rest);
    EXECUTE format('WITH early AS (DELETE FROM %I WHERE %I >= $1 AND %I < $2 RETURNING *) INSERT INTO %I SELECT * FROM early', rest, key, key, month.name)
        USING month.first_id, month.end_id;
    EXECUTE format('ALTER TABLE %I ATTACH PARTITION %I FOR VALUES FROM (%L) TO (%L)', of_log, month.name, month.first_id, month.end_id);
    RETURN month.name;
END
$$;
-- +goose StatementEnd

-- +goose StatementBegin
-- drop_log_partition drops the log's oldest partition if all of its emails were accepted
-- longer ago than age, and than the longest that a company wants. What it holds of emails that are still in the outbox moves to the
-- default partition: a log goes after its outbox row, never before. A month with more
-- than 50,000 such emails stays (dropped = false).
CREATE OR REPLACE FUNCTION drop_log_partition(of_log text, age interval) RETURNS TABLE (name text, dropped boolean, moved bigint)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = public, pg_temp SET lock_timeout = '200ms' SET standard_conforming_strings = on AS $$
DECLARE
    most CONSTANT bigint := 50000; -- some 300 ms, in which nothing is written
    key text := CASE of_log WHEN 'email_logs' THEN 'outbox_id' WHEN 'email_events' THEN 'email_log_id' END;
    oldest record;
    waiting bigint;
BEGIN
    IF key IS NULL OR age < interval '1 day' THEN
        RAISE EXCEPTION 'no partitions of % are dropped after %', of_log, age;
    END IF;
    PERFORM FROM owner_locks l WHERE l.name = of_log AND l.slot = 0 FOR UPDATE SKIP LOCKED;
    IF NOT FOUND THEN
        RETURN;
    END IF;
    age := greatest(age, (SELECT max(logs_days) * interval '1 day' FROM company_retention));
    SELECT p.name, coalesce(p.first_id, '00000000-0000-0000-0000-000000000000') AS first_id, p.end_id INTO oldest
    FROM log_partitions p WHERE p.log = of_log AND p.end_id <= first_id_at(now() - age)
    ORDER BY p.end_id LIMIT 1;
    IF NOT FOUND THEN
        RETURN;
    END IF;
    SELECT count(*) INTO waiting FROM (
        SELECT FROM email_outbox o WHERE o.id >= oldest.first_id AND o.id < oldest.end_id AND o.target = 'email:send' LIMIT most + 1) o;
    IF waiting > most THEN
        RETURN QUERY SELECT oldest.name, false, 0::bigint;
        RETURN;
    END IF;
    EXECUTE format('LOCK TABLE ONLY %I IN ACCESS EXCLUSIVE MODE', of_log);
    EXECUTE format('ALTER TABLE %I DETACH PARTITION %I', of_log, oldest.name);
    EXECUTE format('INSERT INTO %I SELECT l.* FROM email_outbox o JOIN %I l ON l.%I = o.id WHERE o.id >= $1 AND o.id < $2 AND o.target = ''email:send''',
        of_log, oldest.name, key) USING oldest.first_id, oldest.end_id;
    GET DIAGNOSTICS waiting = ROW_COUNT;
    EXECUTE format('DROP TABLE %I', oldest.name);
    RETURN QUERY SELECT oldest.name, true, waiting;
END
$$;
-- +goose StatementEnd

-- +goose Down

-- +goose StatementBegin
-- make_log_partition makes the first of the months from now on that the log has no
-- partition for, and returns its name; NULL if there is none. Rows of that month that
-- stand in the default partition move.
CREATE OR REPLACE FUNCTION make_log_partition(of_log text, months_ahead integer) RETURNS text
LANGUAGE plpgsql SECURITY DEFINER SET search_path = public, pg_temp SET lock_timeout = '200ms' SET standard_conforming_strings = on AS $$
DECLARE
    -- ATTACH reads the default partition from end to end, under a lock that everybody
    -- waits for. It is nearly empty, unless partitions were missing for long.
    most CONSTANT bigint := 64 * 1024 * 1024;
    rest CONSTANT text := of_log || '_default';
    key text := CASE of_log WHEN 'email_logs' THEN 'outbox_id' WHEN 'email_events' THEN 'email_log_id' END;
    month record;
BEGIN
    IF key IS NULL OR months_ahead NOT BETWEEN 0 AND 120 THEN
        RAISE EXCEPTION 'no partitions of % are made % months ahead', of_log, months_ahead;
    END IF;
    IF NOT pg_try_advisory_xact_lock(hashtextextended('partitions of ' || of_log, 0)) THEN
        RETURN NULL;
    END IF;
    SELECT of_log || to_char(m.utc, '"_"YYYY_MM') AS name, first_id_at(m.utc AT TIME ZONE 'UTC') AS first_id,
           first_id_at((m.utc + interval '1 month') AT TIME ZONE 'UTC') AS end_id INTO month
    FROM (SELECT date_trunc('month', now() AT TIME ZONE 'UTC') + n * interval '1 month' AS utc FROM generate_series(0, months_ahead) n) m
    WHERE NOT EXISTS (
        SELECT FROM log_partitions p
        WHERE p.log = of_log AND coalesce(p.first_id <= first_id_at(m.utc AT TIME ZONE 'UTC'), true) AND p.end_id > first_id_at(m.utc AT TIME ZONE 'UTC'))
    ORDER BY m.utc LIMIT 1;
    IF NOT FOUND THEN
        RETURN NULL;
    END IF;
    IF pg_relation_size(rest::regclass) > most THEN
        RAISE EXCEPTION '% cannot be made: % holds more than % bytes', month.name, rest, most;
    END IF;
    EXECUTE format('CREATE TABLE %I (LIKE %I INCLUDING ALL EXCLUDING INDEXES) WITH (fillfactor = %s)', month.name, of_log, CASE of_log WHEN 'email_logs' THEN 80 ELSE 100 END);
    -- ATTACH makes the indexes. The primary key comes first: while the partition is empty all
    -- of them seem equally good for finding a row by its id, and then the planner takes the
    -- oldest. Its plan is still in use when the month begins.
    EXECUTE format('ALTER TABLE %I ADD PRIMARY KEY (%s)', month.name, CASE of_log WHEN 'email_logs' THEN 'outbox_id' ELSE 'email_log_id, seq' END);
    EXECUTE format('LOCK TABLE %I IN ACCESS EXCLUSIVE MODE', rest);
    EXECUTE format('WITH early AS (DELETE FROM %I WHERE %I >= $1 AND %I < $2 RETURNING *) INSERT INTO %I SELECT * FROM early', rest, key, key, month.name)
        USING month.first_id, month.end_id;
    EXECUTE format('ALTER TABLE %I ATTACH PARTITION %I FOR VALUES FROM (%L) TO (%L)', of_log, month.name, month.first_id, month.end_id);
    RETURN month.name;
END
$$;
-- +goose StatementEnd

-- +goose StatementBegin
-- drop_log_partition drops the log's oldest partition if all of its emails were accepted
-- longer ago than age, and than the longest that a company wants. What it holds of emails that are still in the outbox moves to the
-- default partition: a log goes after its outbox row, never before. A month with more
-- than 50,000 such emails stays (dropped = false).
CREATE OR REPLACE FUNCTION drop_log_partition(of_log text, age interval) RETURNS TABLE (name text, dropped boolean, moved bigint)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = public, pg_temp SET lock_timeout = '200ms' SET standard_conforming_strings = on AS $$
DECLARE
    most CONSTANT bigint := 50000; -- some 300 ms, in which nothing is written
    key text := CASE of_log WHEN 'email_logs' THEN 'outbox_id' WHEN 'email_events' THEN 'email_log_id' END;
    oldest record;
    waiting bigint;
BEGIN
    IF key IS NULL OR age < interval '1 day' THEN
        RAISE EXCEPTION 'no partitions of % are dropped after %', of_log, age;
    END IF;
    IF NOT pg_try_advisory_xact_lock(hashtextextended('partitions of ' || of_log, 0)) THEN
        RETURN;
    END IF;
    age := greatest(age, (SELECT max(logs_days) * interval '1 day' FROM company_retention));
    SELECT p.name, coalesce(p.first_id, '00000000-0000-0000-0000-000000000000') AS first_id, p.end_id INTO oldest
    FROM log_partitions p WHERE p.log = of_log AND p.end_id <= first_id_at(now() - age)
    ORDER BY p.end_id LIMIT 1;
    IF NOT FOUND THEN
        RETURN;
    END IF;
    SELECT count(*) INTO waiting FROM (
        SELECT FROM email_outbox o WHERE o.id >= oldest.first_id AND o.id < oldest.end_id AND o.target = 'email:send' LIMIT most + 1) o;
    IF waiting > most THEN
        RETURN QUERY SELECT oldest.name, false, 0::bigint;
        RETURN;
    END IF;
    EXECUTE format('LOCK TABLE ONLY %I IN ACCESS EXCLUSIVE MODE', of_log);
    EXECUTE format('ALTER TABLE %I DETACH PARTITION %I', of_log, oldest.name);
    EXECUTE format('INSERT INTO %I SELECT l.* FROM email_outbox o JOIN %I l ON l.%I = o.id WHERE o.id >= $1 AND o.id < $2 AND o.target = ''email:send''',
        of_log, oldest.name, key) USING oldest.first_id, oldest.end_id;
    GET DIAGNOSTICS waiting = ROW_COUNT;
    EXECUTE format('DROP TABLE %I', oldest.name);
    RETURN QUERY SELECT oldest.name, true, waiting;
END
$$;
-- +goose StatementEnd

DROP FUNCTION hold_settling(uuid);
DROP TABLE owner_locks;
