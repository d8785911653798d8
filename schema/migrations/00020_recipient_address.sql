-- recipient.email may be left out of an email: the recipient is the person at its to.
--
-- email_gateway_enqueue and email_gateway_faults are changed by their text, so that whatever
-- the migrations before have made of them stays. A text that is not there is an error.

-- +goose Up

-- +goose StatementBegin
-- An email with recipient.email as the tables and the worker expect it. Where to is no address
-- there is nothing to fill in, and the fault of to is enough.
CREATE FUNCTION email_gateway_completed(email jsonb) RETURNS jsonb
LANGUAGE sql STABLE SET search_path = pg_catalog, public, pg_temp SET standard_conforming_strings = on AS $$
    SELECT CASE WHEN jsonb_typeof(email -> 'recipient') IS DISTINCT FROM 'object' OR email #>> '{recipient,email}' <> '' THEN email
                WHEN jsonb_typeof(email -> 'to') = 'string' AND email_gateway_is_address(email ->> 'to')
                THEN jsonb_set(email, '{recipient,email}', email -> 'to')
                ELSE email #- '{recipient,email}' END
$$;
-- +goose StatementEnd
REVOKE ALL ON FUNCTION email_gateway_completed(jsonb) FROM PUBLIC;

-- +goose StatementBegin
DO $do$
DECLARE
    c record;
    definition text;
BEGIN
    FOR c IN SELECT * FROM (VALUES
        ('email_gateway_enqueue(uuid, text, text, text, jsonb, timestamptz, interval, text)',
         'body jsonb := email_gateway_present(email);', 'body jsonb := email_gateway_completed(email_gateway_present(email));'),
        ('email_gateway_faults(jsonb)',
         $old$email #>> '{recipient,email}', email ? 'recipient')$old$, $new$email #>> '{recipient,email}', false)$new$),
        ('email_gateway_faults(jsonb)', 'must be equal to to', 'must be the same address as `to`, or be left out')
    ) AS changes (routine, before, after) LOOP
        definition := pg_get_functiondef(c.routine::regprocedure);
        IF strpos(definition, c.before) = 0 THEN
            RAISE EXCEPTION '% does not hold: %', c.routine, c.before;
        END IF;
        EXECUTE replace(definition, c.before, c.after);
    END LOOP;
END
$do$;
-- +goose StatementEnd

-- +goose Down

-- +goose StatementBegin
DO $do$
DECLARE
    c record;
    definition text;
BEGIN
    FOR c IN SELECT * FROM (VALUES
        ('email_gateway_enqueue(uuid, text, text, text, jsonb, timestamptz, interval, text)',
         'body jsonb := email_gateway_present(email);', 'body jsonb := email_gateway_completed(email_gateway_present(email));'),
        ('email_gateway_faults(jsonb)',
         $old$email #>> '{recipient,email}', email ? 'recipient')$old$, $new$email #>> '{recipient,email}', false)$new$),
        ('email_gateway_faults(jsonb)', 'must be equal to to', 'must be the same address as `to`, or be left out')
    ) AS changes (routine, before, after) LOOP
        definition := pg_get_functiondef(c.routine::regprocedure);
        IF strpos(definition, c.after) = 0 THEN
            RAISE EXCEPTION '% does not hold: %', c.routine, c.after;
        END IF;
        EXECUTE replace(definition, c.after, c.before);
    END LOOP;
END
$do$;
-- +goose StatementEnd
DROP FUNCTION email_gateway_completed(jsonb);
