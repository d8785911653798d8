-- Programs that enqueue emails have the rules of the api.
--
-- Control characters: a subject or a person's name must not have any of C1 (U+0080 to U+009F), not only no U+0085. The simulator of
-- SES refuses such a subject, so the email was accepted and failed.
--
-- Addresses: two are the same if they differ in letter case only, also before the @.
--
-- The functions are changed by their text, so that whatever earlier migrations have made of them stays. A text that is not there
-- is an error. No table has a CHECK with this set: emails that were accepted before stay as they are.

-- +goose Up

-- +goose StatementBegin
DO $do$
DECLARE
    c record;
    definition text;
BEGIN
    FOR c IN SELECT * FROM (VALUES
        ('email_gateway_normal_address(text)', 'split_part(address, ''@'', 1) || ''@'' || lower(split_part(address, ''@'', 2))', 'lower(address)'),
        ('email_gateway_faults(jsonb)', 'FROM texts WHERE value ~ ''[\u0001-\u001f\u007f\u0085\u2028\u2029]''', 'FROM texts WHERE value ~ ''[\u0001-\u001f\u007f-\u009f\u2028\u2029]''')
    ) AS changes (routine, before, after) LOOP
        definition := pg_get_functiondef(c.routine::regprocedure);
        IF strpos(definition, c.before) = 0 THEN
            RAISE EXCEPTION '% does not contain: %', c.routine, c.before;
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
        ('email_gateway_normal_address(text)', 'lower(address)', 'split_part(address, ''@'', 1) || ''@'' || lower(split_part(address, ''@'', 2))'),
        ('email_gateway_faults(jsonb)', 'FROM texts WHERE value ~ ''[\u0001-\u001f\u007f-\u009f\u2028\u2029]''', 'FROM texts WHERE value ~ ''[\u0001-\u001f\u007f\u0085\u2028\u2029]''')
    ) AS changes (routine, before, after) LOOP
        definition := pg_get_functiondef(c.routine::regprocedure);
        IF strpos(definition, c.before) = 0 THEN
            RAISE EXCEPTION '% does not contain: %', c.routine, c.before;
        END IF;
        EXECUTE replace(definition, c.before, c.after);
    END LOOP;
END
$do$;
-- +goose StatementEnd
