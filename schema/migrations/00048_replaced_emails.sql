-- The email that another one about the same thing has replaced.
--
-- A retry of a cancelled email and the acceptance of another email of its aggregate and event type could run at the same time,
-- and neither saw the other: both emails were sent. email_gateway_take_key now writes the cancelled email's row, which the
-- retry locks, so one of them waits for the other and then sees it.
--
-- Programs of the previous release call the same function, but their retries do not read the column.

-- +goose Up

SET LOCAL lock_timeout = '3s';

ALTER TABLE email_outbox ADD COLUMN replaced_at timestamptz; -- NULL = not replaced, or replaced before this column existed

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

-- +goose Down

SET LOCAL lock_timeout = '3s';

-- +goose StatementBegin
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
ALTER TABLE email_outbox DROP COLUMN replaced_at;
