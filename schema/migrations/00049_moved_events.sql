-- Dropping a partition does not publish the events of its remaining emails again.
--
-- drop_log_partition moved these rows by an INSERT into the partitioned table. The trigger email_events_feed, which is newer than
-- the function, added them to the feed: webhooks and GET /v1/events repeated them, and they were counted as sent, bounced and so
-- on again. make_log_partition moves its rows into a table that has no triggers yet.

-- +goose Up

SET LOCAL lock_timeout = '3s';

-- +goose StatementBegin
-- Drops the log's oldest partition if all of its emails were accepted longer ago than age, and than the longest retention of a
-- company. Rows of emails that are still in the outbox move to the default partition, because a log is deleted after its outbox
-- row, never before. A partition with more than 50,000 such emails is kept (dropped = false).
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

-- +goose Down

SET LOCAL lock_timeout = '3s';

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
    EXECUTE format('INSERT INTO %I SELECT l.* FROM email_outbox o JOIN %I l ON l.%I = o.id WHERE o.id >= $1 AND o.id < $2 AND o.target = ''email:send''',
        of_log, oldest.name, key) USING oldest.first_id, oldest.end_id;
    GET DIAGNOSTICS waiting = ROW_COUNT;
    EXECUTE format('DROP TABLE %I', oldest.name);
    RETURN QUERY SELECT oldest.name, true, waiting;
END
$$;
-- +goose StatementEnd
