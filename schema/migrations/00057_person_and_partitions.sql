-- gatewayctl person reads the recipients and the dead letters of its company, in the order of their ids, not those of all companies.
--
-- Emails that are scheduled far ahead no longer end the partitions of months. Their events fill the default partition when the
-- month of their acceptance has been dropped: no partition was made when it had more than 64 MiB, not even of a month to come. And a
-- month with too many of them in the outbox is kept: later months were kept with it.

-- +goose NO TRANSACTION
-- +goose Up

-- The statements may be run again: what an interrupted build has left is dropped first.
DROP INDEX CONCURRENTLY IF EXISTS recipients_company;
CREATE INDEX CONCURRENTLY recipients_company ON recipients (company_id, id);
DROP INDEX CONCURRENTLY IF EXISTS dead_letters_person;
CREATE INDEX CONCURRENTLY dead_letters_person ON dead_letters (company_id, id);

-- +goose StatementBegin
-- Finds the next month, from this one to months_ahead, for which the log has no partition; name is NULL if there is none. ATTACH reads
-- the default partition from end to end, under a lock that everybody waits for, unless a CHECK proves that it has no row of the month.
-- proof is the name of this CHECK if the default partition is too large to be read, and NULL if it is small. A month that has begun, or
-- begins soon, has no proof, because it would refuse that month's rows: it comes last, and is too_late.
CREATE OR REPLACE FUNCTION missing_log_partition(of_log text, months_ahead integer, OUT name text, OUT first_id uuid, OUT end_id uuid, OUT proof text, OUT too_late boolean)
LANGUAGE plpgsql STABLE SET search_path = public, pg_temp SET standard_conforming_strings = on AS $$
DECLARE
    large CONSTANT boolean := pg_relation_size((of_log || '_default')::regclass) > 64 * 1024 * 1024;
BEGIN
    SELECT of_log || to_char(m.utc, '"_"YYYY_MM'), first_id_at(m.utc AT TIME ZONE 'UTC'), first_id_at((m.utc + interval '1 month') AT TIME ZONE 'UTC'),
           CASE WHEN large AND NOT m.late THEN of_log || to_char(m.utc, '"_without_"YYYY_MM') END, large AND m.late
    INTO missing_log_partition.name, missing_log_partition.first_id, missing_log_partition.end_id, proof, too_late
    FROM (SELECT u.utc, u.utc < now() AT TIME ZONE 'UTC' + interval '2 days' AS late
          FROM generate_series(0, months_ahead) n CROSS JOIN LATERAL (SELECT date_trunc('month', now() AT TIME ZONE 'UTC') + n * interval '1 month' AS utc) u) m
    WHERE NOT EXISTS (
        SELECT FROM log_partitions p
        WHERE p.log = of_log AND coalesce(p.first_id <= first_id_at(m.utc AT TIME ZONE 'UTC'), true) AND p.end_id > first_id_at(m.utc AT TIME ZONE 'UTC'))
    ORDER BY large AND m.late, m.utc LIMIT 1;
END
$$;
-- +goose StatementEnd
REVOKE ALL ON FUNCTION missing_log_partition(text, integer) FROM PUBLIC;

-- +goose StatementBegin
-- Proves that the default partition has no row of the month that make_log_partition makes next, if it is too large to be read under
-- the lock of ATTACH. It returns true if it has to be called again, in a new transaction: the first call adds the CHECK, which locks the
-- partition for a moment, and the second one reads the partition while others read and write it. Until the partition is
-- made, rows with an id of that month, from a clock that is months ahead, are refused. A CHECK whose month is not made in time is dropped.
CREATE OR REPLACE FUNCTION prove_log_partition(of_log text, months_ahead integer) RETURNS boolean
LANGUAGE plpgsql SECURITY DEFINER SET search_path = public, pg_temp SET lock_timeout = '200ms' SET standard_conforming_strings = on AS $$
DECLARE
    rest CONSTANT text := of_log || '_default';
    key text := CASE of_log WHEN 'email_logs' THEN 'outbox_id' WHEN 'email_events' THEN 'email_log_id' END;
    month record;
    other name;
    known boolean;
BEGIN
    IF key IS NULL OR months_ahead NOT BETWEEN 0 AND 120 THEN
        RAISE EXCEPTION 'no partitions of % are made % months ahead', of_log, months_ahead;
    END IF;
    PERFORM FROM owner_locks l WHERE l.name = of_log AND l.slot = 0 FOR UPDATE SKIP LOCKED;
    IF NOT FOUND THEN
        RETURN false;
    END IF;
    SELECT * INTO month FROM missing_log_partition(of_log, months_ahead);
    FOR other IN
        SELECT c.conname FROM pg_constraint c
        WHERE c.conrelid = rest::regclass AND starts_with(c.conname::text, of_log || '_without_') AND c.conname IS DISTINCT FROM month.proof
    LOOP
        EXECUTE format('ALTER TABLE %I DROP CONSTRAINT %I', rest, other);
    END LOOP;
    IF month.proof IS NULL THEN
        RETURN false;
    END IF;
    SELECT c.convalidated INTO known FROM pg_constraint c WHERE c.conrelid = rest::regclass AND c.conname = month.proof;
    IF known IS NULL THEN
        EXECUTE format('SELECT EXISTS (SELECT FROM %I WHERE %I >= $1 AND %I < $2)', rest, key, key) INTO known USING month.first_id, month.end_id;
        IF known THEN -- a proof would fail; make_log_partition reports it
            RETURN false;
        END IF;
        EXECUTE format('ALTER TABLE %I ADD CONSTRAINT %I CHECK (%I < %L::uuid OR %I >= %L::uuid) NOT VALID', rest, month.proof, key, month.first_id, key, month.end_id);
        RETURN true;
    END IF;
    IF NOT known THEN
        BEGIN
            EXECUTE format('ALTER TABLE %I VALIDATE CONSTRAINT %I', rest, month.proof);
        EXCEPTION WHEN check_violation THEN -- make_log_partition reports it
            EXECUTE format('ALTER TABLE %I DROP CONSTRAINT %I', rest, month.proof);
        END;
    END IF;
    RETURN false;
END
$$;
-- +goose StatementEnd
REVOKE ALL ON FUNCTION prove_log_partition(text, integer) FROM PUBLIC;

-- +goose StatementBegin
-- Makes the partition of the month that missing_log_partition finds, and returns its name; NULL if there is none. Rows of that month move
-- from the default partition.
CREATE OR REPLACE FUNCTION make_log_partition(of_log text, months_ahead integer) RETURNS text
LANGUAGE plpgsql SECURITY DEFINER SET search_path = public, pg_temp SET lock_timeout = '200ms' SET standard_conforming_strings = on AS $$
DECLARE
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
    SELECT * INTO month FROM missing_log_partition(of_log, months_ahead);
    IF month.name IS NULL THEN
        RETURN NULL;
    END IF;
    IF month.too_late OR month.proof IS NOT NULL AND NOT EXISTS (
        SELECT FROM pg_constraint c WHERE c.conrelid = rest::regclass AND c.conname = month.proof AND c.convalidated)
    THEN
        RAISE EXCEPTION '% cannot be made: % is too large to be searched for rows of this month', month.name, rest;
    END IF;
    EXECUTE format('CREATE TABLE %I (LIKE %I INCLUDING ALL EXCLUDING INDEXES) WITH (fillfactor = %s)', month.name, of_log, CASE of_log WHEN 'email_logs' THEN 45 ELSE 100 END);
    -- ATTACH makes the indexes. The primary key comes first: while the partition is empty all
    -- of them seem equally good for finding a row by its id, and then the planner takes the
    -- oldest. Its plan is still in use when the month begins.
    EXECUTE format('ALTER TABLE %I ADD PRIMARY KEY (%s)', month.name, CASE of_log WHEN 'email_logs' THEN 'outbox_id' ELSE 'email_log_id, seq' END);
    EXECUTE format('LOCK TABLE %I IN ACCESS EXCLUSIVE MODE', rest);
    IF month.proof IS NULL THEN
        EXECUTE format('WITH early AS (DELETE FROM %I WHERE %I >= $1 AND %I < $2 RETURNING *) INSERT INTO %I SELECT * FROM early', rest, key, key, month.name)
            USING month.first_id, month.end_id;
    END IF;
    EXECUTE format('ALTER TABLE %I ATTACH PARTITION %I FOR VALUES FROM (%L) TO (%L)', of_log, month.name, month.first_id, month.end_id);
    EXECUTE format('ALTER TABLE %I DROP CONSTRAINT IF EXISTS %I', rest, replace(month.name, of_log, of_log || '_without'));
    RETURN month.name;
END
$$;
-- +goose StatementEnd

-- +goose StatementBegin
-- Drops the log's oldest partition whose emails were all accepted longer ago than age, and than the longest retention of a company, and
-- of which at most 50,000 are still in the outbox. The rows of these move to the default partition, because a log is deleted after its
-- outbox row, never before. If only partitions with more such emails are left, it returns the oldest of them (dropped = false).
CREATE OR REPLACE FUNCTION drop_log_partition(of_log text, age interval) RETURNS TABLE (name text, dropped boolean, moved bigint)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = public, pg_temp SET lock_timeout = '200ms' SET standard_conforming_strings = on AS $$
DECLARE
    most CONSTANT bigint := 50000; -- emails: some 300 ms of email_logs, in which nothing is written; email_events has 5 to 10 rows of each
    key text := CASE of_log WHEN 'email_logs' THEN 'outbox_id' WHEN 'email_events' THEN 'email_log_id' END;
    oldest record;
    waiting bigint;
    kept text;
BEGIN
    IF key IS NULL OR age < interval '1 day' THEN
        RAISE EXCEPTION 'no partitions of % are dropped after %', of_log, age;
    END IF;
    PERFORM FROM owner_locks l WHERE l.name = of_log AND l.slot = 0 FOR UPDATE SKIP LOCKED;
    IF NOT FOUND THEN
        RETURN;
    END IF;
    age := greatest(age, (SELECT max(logs_days) * interval '1 day' FROM company_retention));
    FOR oldest IN
        SELECT p.name, coalesce(p.first_id, '00000000-0000-0000-0000-000000000000') AS first_id, p.end_id
        FROM log_partitions p WHERE p.log = of_log AND p.end_id <= first_id_at(now() - age)
        ORDER BY p.end_id
    LOOP
        SELECT count(*) INTO waiting FROM (
            SELECT FROM email_outbox o WHERE o.id >= oldest.first_id AND o.id < oldest.end_id AND o.target = 'email:send' LIMIT most + 1) o;
        IF waiting > most THEN
            kept := coalesce(kept, oldest.name);
            CONTINUE;
        END IF;
        EXECUTE format('LOCK TABLE ONLY %I IN ACCESS EXCLUSIVE MODE', of_log);
        EXECUTE format('ALTER TABLE %I DETACH PARTITION %I', of_log, oldest.name);
        -- An INSERT into the log itself would fire its statement triggers, which count the rows as new.
        EXECUTE format('INSERT INTO %I SELECT l.* FROM email_outbox o JOIN %I l ON l.%I = o.id WHERE o.id >= $1 AND o.id < $2 AND o.target = ''email:send''',
            of_log || '_default', oldest.name, key) USING oldest.first_id, oldest.end_id;
        GET DIAGNOSTICS waiting = ROW_COUNT;
        EXECUTE format('DROP TABLE %I', oldest.name);
        RETURN QUERY SELECT oldest.name, true, waiting;
        RETURN;
    END LOOP;
    RETURN QUERY SELECT kept, false, 0::bigint WHERE kept IS NOT NULL;
END
$$;
-- +goose StatementEnd

-- +goose Down

-- +goose StatementBegin
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
    -- An INSERT into the log itself would fire its statement triggers, which count the rows as new.
    EXECUTE format('INSERT INTO %I SELECT l.* FROM email_outbox o JOIN %I l ON l.%I = o.id WHERE o.id >= $1 AND o.id < $2 AND o.target = ''email:send''',
        of_log || '_default', oldest.name, key) USING oldest.first_id, oldest.end_id;
    GET DIAGNOSTICS waiting = ROW_COUNT;
    EXECUTE format('DROP TABLE %I', oldest.name);
    RETURN QUERY SELECT oldest.name, true, waiting;
END
$$;
-- +goose StatementEnd

-- +goose StatementBegin
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
    EXECUTE format('CREATE TABLE %I (LIKE %I INCLUDING ALL EXCLUDING INDEXES) WITH (fillfactor = %s)', month.name, of_log, CASE of_log WHEN 'email_logs' THEN 45 ELSE 100 END);
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
DROP FUNCTION IF EXISTS prove_log_partition(text, integer), missing_log_partition(text, integer);

DROP INDEX CONCURRENTLY IF EXISTS dead_letters_person;
DROP INDEX CONCURRENTLY IF EXISTS recipients_company;
