-- A program that moves a scheduled email to an earlier time names its lane to the dispatchers,
-- which otherwise look at the lane when its first email known to them is due, and at all lanes
-- every 30 s. Postgres sends the notification when the program's transaction commits. Moves are
-- rare beside sends; a notification of the same lane is sent once per transaction.
--
-- Dispatchers of the release before ignore what a notification says and look at all lanes.
--
-- email_gateway_move is changed by its text, as in 00025.

-- +goose Up

-- +goose StatementBegin
DO $do$
DECLARE
    routine CONSTANT regprocedure := 'email_gateway_move(uuid, timestamptz, timestamptz, interval)';
    before CONSTANT text := '    WITH found AS MATERIALIZED (';
    notify CONSTANT text := $$    SELECT pg_notify('email_outbox', o.lane_id::text) FROM email_outbox o WHERE o.id = email_gateway_move.id AND o.next_at > due;
$$;
    definition text := pg_get_functiondef(routine);
BEGIN
    IF strpos(definition, before) = 0 THEN
        RAISE EXCEPTION '% does not hold: %', routine, before;
    END IF;
    IF strpos(definition, notify) = 0 THEN
        EXECUTE replace(definition, before, notify || before);
    END IF;
END
$do$;
-- +goose StatementEnd

-- +goose Down

-- +goose StatementBegin
DO $do$
DECLARE
    notify CONSTANT text := $$    SELECT pg_notify('email_outbox', o.lane_id::text) FROM email_outbox o WHERE o.id = email_gateway_move.id AND o.next_at > due;
$$;
BEGIN
    EXECUTE replace(pg_get_functiondef('email_gateway_move(uuid, timestamptz, timestamptz, interval)'::regprocedure), notify, '');
END
$do$;
-- +goose StatementEnd
