-- A role may turn standard_conforming_strings off in its session. A backslash in a literal
-- of our functions was then read away: '\s' became 's', and an address with a comma or a
-- line end passed. Every function now has the setting of its own. A function that a later
-- migration replaces must name it again: schema_test.go lists those without.
--
-- Headers that name servers on the way, or the verdicts of such, are reserved too.

-- +goose Up

-- +goose StatementBegin
-- Says whether the gateway, the provider or a server on the way sets a header. Package
-- rules holds the same list.
CREATE FUNCTION email_gateway_is_reserved(name text) RETURNS boolean
LANGUAGE sql IMMUTABLE SET search_path = pg_catalog, public, pg_temp SET standard_conforming_strings = on AS $$
    SELECT lower(name) ~ '^(content-|dkim-|x-ses-|list-unsubscribe|resent-|arc-)' OR lower(name) IN (
        'from', 'to', 'cc', 'bcc', 'subject', 'reply-to', 'date', 'message-id', 'mime-version', 'return-path', 'sender', 'received',
        'authentication-results', 'received-spf', 'delivered-to')
$$;
-- +goose StatementEnd
REVOKE ALL ON FUNCTION email_gateway_is_reserved(text) FROM PUBLIC;

-- +goose StatementBegin
-- What is wrong with the values of an email that has the right shape: the rules of
-- POST /v1/email/send. Left to the worker, which fails the email where its sender can see
-- it: whether the html holds script.
CREATE OR REPLACE FUNCTION email_gateway_faults(email jsonb) RETURNS TABLE (field text, code text, message text)
LANGUAGE sql STABLE SET search_path = pg_catalog, public, pg_temp SET standard_conforming_strings = on AS $$
    WITH texts (name, value, required, longest) AS (VALUES
        ('subject', email ->> 'subject', true, 150),
        ('recipient.externalId', email #>> '{recipient,externalId}', false, 200),
        ('recipient.razaoSocial', email #>> '{recipient,razaoSocial}', false, 200),
        ('recipient.nome', email #>> '{recipient,nome}', false, 200)
    ), bodies (name, value, required) AS (VALUES
        ('html', email ->> 'html', true), ('text', email ->> 'text', false)
    ), addresses (name, value, required) AS (
        VALUES ('to', email ->> 'to', true), ('replyTo', email ->> 'replyTo', false), ('recipient.email', email #>> '{recipient,email}', email ? 'recipient')
        UNION ALL
        SELECT l.name || '[' || (e.n - 1) || ']', e.value, true
        FROM (VALUES ('cc'), ('bcc')) AS l (name)
        CROSS JOIN LATERAL jsonb_array_elements_text(coalesce(email -> l.name, '[]')) WITH ORDINALITY AS e (value, n)
    ), headers (name, value) AS (
        SELECT key, value FROM jsonb_each_text(coalesce(email -> 'headers', '{}'))
    )
    SELECT name, 'REQUIRED', 'is required' FROM (
        SELECT name, value, required FROM texts UNION ALL SELECT * FROM bodies UNION ALL SELECT * FROM addresses
        UNION ALL VALUES ('recipient', email ->> 'recipient', true)) AS all_of_them
    WHERE required AND coalesce(value, '') = ''
    UNION ALL
    SELECT name, 'TOO_LONG', 'must have at most ' || longest || ' characters' FROM texts WHERE length(value) > longest
    UNION ALL
    SELECT name, 'BAD_CHARACTER', 'must not hold control characters or line ends' FROM texts WHERE value ~ '[\u0001-\u001f\u007f\u0085\u2028\u2029]'
    UNION ALL
    SELECT 'recipient.externalId', 'REQUIRED', 'must not be empty' WHERE email #>> '{recipient,externalId}' = ''
    UNION ALL
    SELECT name, 'TOO_LONG', 'must be at most 524288 bytes of UTF-8' FROM bodies WHERE octet_length(value) > 524288
    UNION ALL
    SELECT name, 'INVALID_EMAIL', 'is not an email address with its domain in ASCII' FROM addresses WHERE (value <> '' OR NOT required) AND NOT email_gateway_is_address(value)
    UNION ALL
    SELECT 'from', 'INVALID_EMAIL', 'must be an address, or a name in ASCII with one: "Acme" <billing@acme.example>'
    WHERE email ? 'from' AND email_gateway_is_address(email_gateway_address_of(email ->> 'from')) IS NOT TRUE
    UNION ALL
    SELECT name, 'TOO_MANY', 'must have at most 5 entries' FROM (VALUES ('cc'), ('bcc'), ('tags')) AS l (name)
    WHERE jsonb_array_length(coalesce(email -> name, '[]')) > 5
    UNION ALL
    SELECT 'tags[' || (n - 1) || ']', f.code, f.message
    FROM jsonb_array_elements_text(coalesce(email -> 'tags', '[]')) WITH ORDINALITY AS e (value, n)
    CROSS JOIN LATERAL (VALUES
        ('REQUIRED', 'is required', value = ''), ('TOO_LONG', 'must have at most 64 characters', length(value) > 64),
        ('BAD_CHARACTER', 'must hold printable characters only', value ~ '[\u0001-\u001f\u007f-\u009f\u2028\u2029]')) AS f (code, message, so)
    WHERE f.so
    UNION ALL
    SELECT 'headers', 'TOO_MANY', 'must have at most 10 entries' WHERE (SELECT count(*) FROM headers) > 10
    UNION ALL
    SELECT 'headers.' || left(name, 126), 'INVALID_HEADER_NAME', 'must have a name of 1 to 126 printable ASCII characters without space and colon'
    FROM headers WHERE name !~ '^[!-9;-~]{1,126}$'
    UNION ALL
    SELECT 'headers.' || left(name, 126), 'RESERVED_HEADER', 'is set by the gateway or the provider' FROM headers
    WHERE email_gateway_is_reserved(name)
    UNION ALL
    SELECT 'headers.' || left(name, 126), 'INVALID_HEADER_VALUE', 'must have a value of 1 to 900 printable ASCII characters'
    FROM headers WHERE value !~ '^[ -~]+$' OR length(value) > 900 OR btrim(value) = ''
    UNION ALL
    SELECT 'headers.' || left(max(name), 126), 'DUPLICATE_FIELD', 'stands here twice, in different case' FROM headers GROUP BY lower(name) HAVING count(*) > 1
    UNION ALL
    SELECT 'recipient.email', 'MISMATCH', 'must be equal to to'
    WHERE email_gateway_normal_address(email #>> '{recipient,email}') <> email_gateway_normal_address(email ->> 'to')
    UNION ALL
    SELECT 'recipient', 'REQUIRED', 'needs recipientId, externalId or cpfCnpjHash'
    WHERE email ? 'recipient' AND NOT (email -> 'recipient' ?| '{recipientId,externalId,cpfCnpjHash}'::text[])
    UNION ALL
    SELECT 'recipient.recipientId', 'INVALID_ID', 'must be a UUID'
    WHERE email #>> '{recipient,recipientId}' !~ '^[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}$'
    UNION ALL
    SELECT 'recipient.cpfCnpjHash', 'INVALID_HASH', 'must be a SHA-256 in 64 lower-case hex digits' WHERE email #>> '{recipient,cpfCnpjHash}' !~ '^[0-9a-f]{64}$'
    UNION ALL
    SELECT 'priority', 'OUT_OF_RANGE', 'must be a whole number from 1 to 10' WHERE email ->> 'priority' !~ '^([1-9]|10)$'
    UNION ALL
    SELECT 'delivery', 'NOT_ALLOWED', 'must be one of: at_least_once, at_most_once' WHERE email ->> 'delivery' NOT IN ('at_least_once', 'at_most_once')
$$;
-- +goose StatementEnd

-- +goose StatementBegin
DO $$
DECLARE
    routine regprocedure;
BEGIN
    FOR routine IN
        SELECT p.oid FROM pg_proc p
        WHERE p.pronamespace = 'public'::regnamespace AND p.prokind = 'f'
          AND (starts_with(p.proname, 'email_gateway_')
               OR p.proname IN ('first_id_at', 'make_log_partition', 'drop_log_partition', 'first_present_step'))
    LOOP
        EXECUTE format('ALTER FUNCTION %s SET standard_conforming_strings = on', routine);
    END LOOP;
END
$$;
-- +goose StatementEnd

-- +goose Down

-- +goose StatementBegin
-- What is wrong with the values of an email that has the right shape: the rules of
-- POST /v1/email/send. Left to the worker, which fails the email where its sender can see
-- it: whether the html holds script.
CREATE OR REPLACE FUNCTION email_gateway_faults(email jsonb) RETURNS TABLE (field text, code text, message text)
LANGUAGE sql STABLE SET search_path = pg_catalog, public, pg_temp AS $$
    WITH texts (name, value, required, longest) AS (VALUES
        ('subject', email ->> 'subject', true, 150),
        ('recipient.externalId', email #>> '{recipient,externalId}', false, 200),
        ('recipient.razaoSocial', email #>> '{recipient,razaoSocial}', false, 200),
        ('recipient.nome', email #>> '{recipient,nome}', false, 200)
    ), bodies (name, value, required) AS (VALUES
        ('html', email ->> 'html', true), ('text', email ->> 'text', false)
    ), addresses (name, value, required) AS (
        VALUES ('to', email ->> 'to', true), ('replyTo', email ->> 'replyTo', false), ('recipient.email', email #>> '{recipient,email}', email ? 'recipient')
        UNION ALL
        SELECT l.name || '[' || (e.n - 1) || ']', e.value, true
        FROM (VALUES ('cc'), ('bcc')) AS l (name)
        CROSS JOIN LATERAL jsonb_array_elements_text(coalesce(email -> l.name, '[]')) WITH ORDINALITY AS e (value, n)
    ), headers (name, value) AS (
        SELECT key, value FROM jsonb_each_text(coalesce(email -> 'headers', '{}'))
    )
    SELECT name, 'REQUIRED', 'is required' FROM (
        SELECT name, value, required FROM texts UNION ALL SELECT * FROM bodies UNION ALL SELECT * FROM addresses
        UNION ALL VALUES ('recipient', email ->> 'recipient', true)) AS all_of_them
    WHERE required AND coalesce(value, '') = ''
    UNION ALL
    SELECT name, 'TOO_LONG', 'must have at most ' || longest || ' characters' FROM texts WHERE length(value) > longest
    UNION ALL
    SELECT name, 'BAD_CHARACTER', 'must not hold control characters or line ends' FROM texts WHERE value ~ '[\u0001-\u001f\u007f\u0085\u2028\u2029]'
    UNION ALL
    SELECT 'recipient.externalId', 'REQUIRED', 'must not be empty' WHERE email #>> '{recipient,externalId}' = ''
    UNION ALL
    SELECT name, 'TOO_LONG', 'must be at most 524288 bytes of UTF-8' FROM bodies WHERE octet_length(value) > 524288
    UNION ALL
    SELECT name, 'INVALID_EMAIL', 'is not an email address with its domain in ASCII' FROM addresses WHERE (value <> '' OR NOT required) AND NOT email_gateway_is_address(value)
    UNION ALL
    SELECT 'from', 'INVALID_EMAIL', 'must be an address, or a name in ASCII with one: "Acme" <billing@acme.example>'
    WHERE email ? 'from' AND email_gateway_is_address(email_gateway_address_of(email ->> 'from')) IS NOT TRUE
    UNION ALL
    SELECT name, 'TOO_MANY', 'must have at most 5 entries' FROM (VALUES ('cc'), ('bcc'), ('tags')) AS l (name)
    WHERE jsonb_array_length(coalesce(email -> name, '[]')) > 5
    UNION ALL
    SELECT 'tags[' || (n - 1) || ']', f.code, f.message
    FROM jsonb_array_elements_text(coalesce(email -> 'tags', '[]')) WITH ORDINALITY AS e (value, n)
    CROSS JOIN LATERAL (VALUES
        ('REQUIRED', 'is required', value = ''), ('TOO_LONG', 'must have at most 64 characters', length(value) > 64),
        ('BAD_CHARACTER', 'must hold printable characters only', value ~ '[\u0001-\u001f\u007f-\u009f\u2028\u2029]')) AS f (code, message, so)
    WHERE f.so
    UNION ALL
    SELECT 'headers', 'TOO_MANY', 'must have at most 10 entries' WHERE (SELECT count(*) FROM headers) > 10
    UNION ALL
    SELECT 'headers.' || left(name, 126), 'INVALID_HEADER_NAME', 'must have a name of 1 to 126 printable ASCII characters without space and colon'
    FROM headers WHERE name !~ '^[!-9;-~]{1,126}$'
    UNION ALL
    SELECT 'headers.' || left(name, 126), 'RESERVED_HEADER', 'is set by the gateway or the provider' FROM headers
    WHERE lower(name) ~ '^(content-|dkim-|x-ses-|list-unsubscribe)' OR lower(name) IN (
        'from', 'to', 'cc', 'bcc', 'subject', 'reply-to', 'date', 'message-id', 'mime-version', 'return-path', 'sender', 'received')
    UNION ALL
    SELECT 'headers.' || left(name, 126), 'INVALID_HEADER_VALUE', 'must have a value of 1 to 900 printable ASCII characters'
    FROM headers WHERE value !~ '^[ -~]+$' OR length(value) > 900 OR btrim(value) = ''
    UNION ALL
    SELECT 'headers.' || left(max(name), 126), 'DUPLICATE_FIELD', 'stands here twice, in different case' FROM headers GROUP BY lower(name) HAVING count(*) > 1
    UNION ALL
    SELECT 'recipient.email', 'MISMATCH', 'must be equal to to'
    WHERE email_gateway_normal_address(email #>> '{recipient,email}') <> email_gateway_normal_address(email ->> 'to')
    UNION ALL
    SELECT 'recipient', 'REQUIRED', 'needs recipientId, externalId or cpfCnpjHash'
    WHERE email ? 'recipient' AND NOT (email -> 'recipient' ?| '{recipientId,externalId,cpfCnpjHash}'::text[])
    UNION ALL
    SELECT 'recipient.recipientId', 'INVALID_ID', 'must be a UUID'
    WHERE email #>> '{recipient,recipientId}' !~ '^[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}$'
    UNION ALL
    SELECT 'recipient.cpfCnpjHash', 'INVALID_HASH', 'must be a SHA-256 in 64 lower-case hex digits' WHERE email #>> '{recipient,cpfCnpjHash}' !~ '^[0-9a-f]{64}$'
    UNION ALL
    SELECT 'priority', 'OUT_OF_RANGE', 'must be a whole number from 1 to 10' WHERE email ->> 'priority' !~ '^([1-9]|10)$'
    UNION ALL
    SELECT 'delivery', 'NOT_ALLOWED', 'must be one of: at_least_once, at_most_once' WHERE email ->> 'delivery' NOT IN ('at_least_once', 'at_most_once')
$$;
-- +goose StatementEnd
DROP FUNCTION email_gateway_is_reserved(text);

-- +goose StatementBegin
DO $$
DECLARE
    routine regprocedure;
BEGIN
    FOR routine IN
        SELECT p.oid FROM pg_proc p
        WHERE p.pronamespace = 'public'::regnamespace AND p.prokind = 'f'
          AND 'standard_conforming_strings=on' = ANY (p.proconfig)
    LOOP
        EXECUTE format('ALTER FUNCTION %s RESET standard_conforming_strings', routine);
    END LOOP;
END
$$;
-- +goose StatementEnd
