-- The log of a scheduled email holds the time that it is scheduled for. The deadline does not
-- tell that time: every program that accepts emails has a TTL of its own.
--
-- Programs of the release before run beside this: they leave the column NULL, which means
-- unknown, and move an email without changing it. The event RESCHEDULED tells of such a move.
--
-- email_gateway_log and email_gateway_move are changed by their text, so that whatever the
-- migrations before have made of them stays. A text that is not there is an error.

-- +goose Up

SET LOCAL lock_timeout = '3s'; -- a backup may use the table for hours

ALTER TABLE email_logs ADD COLUMN send_at timestamptz; -- NULL = was not scheduled, or not known

-- +goose StatementBegin
DO $do$
DECLARE
    f record;
    c record;
    definition text;
BEGIN
    FOR f IN SELECT * FROM (VALUES
        ('email_gateway_log(uuid)', ARRAY[
            ['created_at, event_seq)', 'created_at, event_seq, send_at)'],
            ['o.created_at, 0', 'o.created_at, 0, o.next_at']]),
        ('email_gateway_move(uuid, timestamptz, timestamptz, interval)', ARRAY[
            ['event_seq, last_event)', 'event_seq, last_event, send_at)'],
            [$$1, 'RESCHEDULED'$$, $$1, 'RESCHEDULED', m.next_at$$],
            ['last_event = excluded.last_event', 'last_event = excluded.last_event, send_at = excluded.send_at']])
    ) AS functions (routine, changes) LOOP
        definition := pg_get_functiondef(f.routine::regprocedure);
        FOR c IN SELECT f.changes[n][1] AS before, f.changes[n][2] AS after FROM generate_subscripts(f.changes, 1) AS n LOOP
            IF strpos(definition, c.before) = 0 THEN
                RAISE EXCEPTION '% does not hold: %', f.routine, c.before;
            END IF;
            definition := replace(definition, c.before, c.after);
        END LOOP;
        EXECUTE definition;
    END LOOP;
END
$do$;
-- +goose StatementEnd

-- +goose Down

-- +goose StatementBegin
DO $do$
DECLARE
    f record;
    c record;
    definition text;
BEGIN
    FOR f IN SELECT * FROM (VALUES
        ('email_gateway_log(uuid)', ARRAY[
            ['created_at, event_seq)', 'created_at, event_seq, send_at)'],
            ['o.created_at, 0', 'o.created_at, 0, o.next_at']]),
        ('email_gateway_move(uuid, timestamptz, timestamptz, interval)', ARRAY[
            ['event_seq, last_event)', 'event_seq, last_event, send_at)'],
            [$$1, 'RESCHEDULED'$$, $$1, 'RESCHEDULED', m.next_at$$],
            ['last_event = excluded.last_event', 'last_event = excluded.last_event, send_at = excluded.send_at']])
    ) AS functions (routine, changes) LOOP
        definition := pg_get_functiondef(f.routine::regprocedure);
        FOR c IN SELECT f.changes[n][1] AS before, f.changes[n][2] AS after FROM generate_subscripts(f.changes, 1) AS n LOOP
            IF strpos(definition, c.after) = 0 THEN
                RAISE EXCEPTION '% does not hold: %', f.routine, c.after;
            END IF;
            definition := replace(definition, c.after, c.before);
        END LOOP;
        EXECUTE definition;
    END LOOP;
END
$do$;
-- +goose StatementEnd
ALTER TABLE email_logs DROP COLUMN send_at;
