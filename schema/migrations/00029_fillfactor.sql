-- Room for updates. An entry of a mailing is updated twice (QUEUED and its end) and the log of an email once or more; no index
-- holds what these updates change. With room in the row's own page they are HOT: they write no index entry, of which an
-- entry has two and a log five or more.
--
-- Programs of the release before run beside this. Pages that are filled already stay as they are.

-- +goose Up

-- A backup may use a table for hours; everything would queue up behind this lock.
SET LOCAL lock_timeout = '3s';

-- A page of 8 kB takes the rows of half a page twice: while an update is being committed, the versions before the last one
-- have gone already.
ALTER TABLE mailing_entries SET (fillfactor = 45);

-- +goose StatementBegin
DO $do$
DECLARE
    partition regclass;
    definition text := pg_get_functiondef('make_log_partition(text, integer)'::regprocedure);
BEGIN
    FOR partition IN SELECT inhrelid::regclass FROM pg_inherits WHERE inhparent = 'email_logs'::regclass LOOP
        EXECUTE format('ALTER TABLE %s SET (fillfactor = 45)', partition);
    END LOOP;
    IF strpos(definition, 'WHEN ''email_logs'' THEN 80 ELSE 100') = 0 THEN
        RAISE EXCEPTION 'make_log_partition does not hold: WHEN ''email_logs'' THEN 80 ELSE 100';
    END IF;
    EXECUTE replace(definition, 'WHEN ''email_logs'' THEN 80 ELSE 100', 'WHEN ''email_logs'' THEN 45 ELSE 100');
END
$do$;
-- +goose StatementEnd

-- +goose Down

SET LOCAL lock_timeout = '3s';

ALTER TABLE mailing_entries SET (fillfactor = 80);

-- +goose StatementBegin
DO $do$
DECLARE
    partition regclass;
    definition text := pg_get_functiondef('make_log_partition(text, integer)'::regprocedure);
BEGIN
    FOR partition IN SELECT inhrelid::regclass FROM pg_inherits WHERE inhparent = 'email_logs'::regclass LOOP
        EXECUTE format('ALTER TABLE %s SET (fillfactor = 80)', partition);
    END LOOP;
    IF strpos(definition, 'WHEN ''email_logs'' THEN 45 ELSE 100') = 0 THEN
        RAISE EXCEPTION 'make_log_partition does not hold: WHEN ''email_logs'' THEN 45 ELSE 100';
    END IF;
    EXECUTE replace(definition, 'WHEN ''email_logs'' THEN 45 ELSE 100', 'WHEN ''email_logs'' THEN 80 ELSE 100');
END
$do$;
-- +goose StatementEnd
