-- Emails that are about something of their sender's: an interview's reminders are written
-- in the transaction that writes the interview, are found by it, moved and withdrawn.
-- The functions are for programs that share this database, in any language; their role
-- (gateway_program, roles.sql) may call three of them and touch nothing else.

-- +goose NO TRANSACTION
-- +goose Up

-- Whoever uses a table meanwhile (a backup does for hours) would hold up this, and behind it
-- everybody else. It gives up instead, and goes on where it was when it is run again.
SET lock_timeout = '3s';

-- What an email is about is an attribute of its row. The constraint is proved beside the
-- rows that are there, without stopping writes.
ALTER TABLE email_outbox
    ADD COLUMN IF NOT EXISTS aggregate_type text, -- 'interview'
    ADD COLUMN IF NOT EXISTS aggregate_id text,   -- the interview's id
    ADD COLUMN IF NOT EXISTS event_type text;     -- 'REMINDER_24H'
ALTER TABLE email_outbox DROP CONSTRAINT IF EXISTS email_outbox_aggregate_is_whole;
ALTER TABLE email_outbox ADD CONSTRAINT email_outbox_aggregate_is_whole CHECK (
    num_nulls(aggregate_type, aggregate_id, event_type) IN (0, 3)) NOT VALID;
ALTER TABLE email_outbox VALIDATE CONSTRAINT email_outbox_aggregate_is_whole;

-- Which email is the one about this, and the way to find it. It outlives the outbox row,
-- as the log does. A key is taken once; when its email was cancelled, the next one has
-- its turn.
CREATE TABLE IF NOT EXISTS outbox_aggregates (
    company_id      uuid NOT NULL,
    aggregate_type  text NOT NULL,
    aggregate_id    text NOT NULL,
    event_type      text NOT NULL,
    turn            integer NOT NULL DEFAULT 1 CHECK (turn > 0),
    outbox_id       uuid NOT NULL,
    PRIMARY KEY (company_id, aggregate_type, aggregate_id, event_type, turn),
    -- What can stand in a path, less the @, so that no address gets here by habit.
    CONSTRAINT outbox_aggregates_type CHECK (aggregate_type ~ '^[A-Za-z0-9][A-Za-z0-9._:=~-]*$' AND length(aggregate_type) <= 64),
    CONSTRAINT outbox_aggregates_id CHECK (aggregate_id ~ '^[A-Za-z0-9][A-Za-z0-9._:=~-]*$' AND length(aggregate_id) <= 200),
    CONSTRAINT outbox_aggregates_event CHECK (event_type ~ '^[A-Za-z0-9][A-Za-z0-9._:=~-]*$' AND length(event_type) <= 64)
);
CREATE UNIQUE INDEX IF NOT EXISTS outbox_aggregates_outbox ON outbox_aggregates (outbox_id);

-- Which database role may write whose emails. Its owner fills it.
CREATE TABLE IF NOT EXISTS outbox_programs (
    role_name   text NOT NULL CHECK (role_name <> ''),
    company_id  uuid NOT NULL REFERENCES companies,
    created_at  timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (role_name, company_id)
);

-- Keys go when neither outbox nor log has their email any more.
ALTER TABLE retention_walks DROP CONSTRAINT IF EXISTS retention_walks_kind_check;
ALTER TABLE retention_walks ADD CONSTRAINT retention_walks_kind_check CHECK (kind IN ('outbox', 'bodies', 'logs', 'events', 'aggregates'));

-- +goose StatementBegin
-- An address in the form in which it is stored: the rules of the api and the worker.
CREATE OR REPLACE FUNCTION email_gateway_is_address(address text) RETURNS boolean
LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE SET search_path = pg_catalog, pg_temp AS $$
    SELECT length(address) <= 254 AND length(split_part(address, '@', 1)) <= 64 AND length(split_part(address, '@', 2)) <= 253
       AND address ~ '^[A-Za-z0-9!#$%&''*+/=?^_`{|}~-]+(\.[A-Za-z0-9!#$%&''*+/=?^_`{|}~-]+)*@([A-Za-z0-9]([A-Za-z0-9-]{0,61}[A-Za-z0-9])?\.)+[A-Za-z0-9]([A-Za-z0-9-]{0,61}[A-Za-z0-9])?$'
       AND address !~ '\.[0-9]+$'
$$;
-- +goose StatementEnd

-- +goose StatementBegin
-- Two addresses are one: the domain in any case.
CREATE OR REPLACE FUNCTION email_gateway_normal_address(address text) RETURNS text
LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE SET search_path = pg_catalog, pg_temp AS $$
    SELECT split_part(address, '@', 1) || '@' || lower(split_part(address, '@', 2))
$$;
-- +goose StatementEnd

-- +goose StatementBegin
-- The address in a From header; NULL where it is not one mailbox in ASCII. A name is
-- quoted, or words of letters and digits, or encoded (RFC 2047).
CREATE OR REPLACE FUNCTION email_gateway_address_of(mailbox text) RETURNS text
LANGUAGE plpgsql IMMUTABLE STRICT PARALLEL SAFE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    found text[];
BEGIN
    IF length(mailbox) > 2000 OR mailbox !~ '^[ -~]+$' THEN
        RETURN NULL;
    END IF;
    found := regexp_match(mailbox, '^(?:"(?:[^"\\]|\\.)*"|[A-Za-z0-9!#$%&''*+/=?^_`{|}~ -]+)? ?<([^<>]+)>$');
    RETURN coalesce(found[1], mailbox);
END
$$;
-- +goose StatementEnd

-- +goose StatementBegin
-- What is wrong with the shape of an email: fields that nobody knows, values of a wrong
-- type. The function that looks at the values relies on it.
CREATE OR REPLACE FUNCTION email_gateway_misshapen(email jsonb) RETURNS TABLE (field text, code text, message text)
LANGUAGE sql STABLE SET search_path = pg_catalog, public, pg_temp AS $$
    SELECT g.name, CASE WHEN g.type IS NULL THEN 'UNKNOWN_FIELD' ELSE 'WRONG_TYPE' END,
           CASE WHEN g.type IS NOT NULL THEN 'must be of the type ' || g.type
                WHEN g.name = 'sendAt' THEN 'is not a field here: give it as send_at'
                WHEN g.name = 'aggregate' THEN 'is not a field here: it has arguments of its own'
                WHEN g.name = 'recipient.cpfCnpj' THEN 'is for the HTTP API, which can encrypt it: give cpfCnpjHash'
                ELSE 'is not a field of an email' END
    FROM (
        SELECT e.key, e.value, x.type FROM jsonb_each(email) e
        LEFT JOIN (VALUES ('to', 'string'), ('cc', 'array'), ('bcc', 'array'), ('subject', 'string'), ('html', 'string'), ('text', 'string'),
                          ('replyTo', 'string'), ('from', 'string'), ('headers', 'object'), ('tags', 'array'), ('recipient', 'object'),
                          ('priority', 'number'), ('delivery', 'string')) AS x (name, type) ON x.name = e.key
        UNION ALL
        SELECT 'recipient.' || e.key, e.value, x.type
        FROM jsonb_each(CASE jsonb_typeof(email -> 'recipient') WHEN 'object' THEN email -> 'recipient' ELSE '{}' END) e
        LEFT JOIN (VALUES ('recipientId', 'string'), ('externalId', 'string'), ('cpfCnpjHash', 'string'), ('razaoSocial', 'string'),
                          ('nome', 'string'), ('email', 'string')) AS x (name, type) ON x.name = e.key
        UNION ALL
        SELECT 'headers.' || left(e.key, 126), e.value, 'string'
        FROM jsonb_each(CASE jsonb_typeof(email -> 'headers') WHEN 'object' THEN email -> 'headers' ELSE '{}' END) e
        UNION ALL
        SELECT l.name || '[' || (e.n - 1) || ']', e.value, 'string'
        FROM (VALUES ('cc'), ('bcc'), ('tags')) AS l (name)
        CROSS JOIN LATERAL jsonb_array_elements(CASE jsonb_typeof(email -> l.name) WHEN 'array' THEN email -> l.name ELSE '[]' END)
                           WITH ORDINALITY AS e (value, n)
    ) AS g (name, value, type)
    WHERE g.type IS NULL OR jsonb_typeof(g.value) <> g.type
$$;
-- +goose StatementEnd

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

-- +goose StatementBegin
-- Lets a role in that may write the company's emails, and the tables' owner. It is the
-- role that logged in: SET ROLE changes nothing. One that may make functions in the schema
-- of the gateway's tables is not let in: there they would stand in the way of the
-- gateway's own programs, and be run with their rights.
CREATE OR REPLACE FUNCTION email_gateway_admit(company uuid) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, public, pg_temp AS $$
BEGIN
    IF pg_has_role(session_user, current_user, 'MEMBER') THEN
        RETURN;
    END IF;
    IF has_schema_privilege(session_user, 'public', 'CREATE') THEN
        RAISE EXCEPTION 'role % may create functions beside the gateway''s tables', session_user
            USING ERRCODE = 'insufficient_privilege', HINT = 'Revoke CREATE on schema public from it; its own tables can stand in a schema of their own.';
    END IF;
    IF EXISTS (
        SELECT FROM outbox_programs p JOIN pg_roles r ON r.rolname = p.role_name
        WHERE p.company_id = company AND pg_has_role(session_user, r.oid, 'MEMBER'))
    THEN
        RETURN;
    END IF;
    RAISE EXCEPTION 'role % may not write emails of company %', session_user, company
        USING ERRCODE = 'insufficient_privilege', HINT = 'The tables'' owner allows it with a row in outbox_programs.';
END
$$;
-- +goose StatementEnd

-- +goose StatementBegin
-- Refuses a time that an email cannot wait for, and a deadline that the api would not take.
CREATE OR REPLACE FUNCTION email_gateway_check_times(send_at timestamptz, ttl interval) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    IF send_at > clock_timestamp() + interval '1 year' THEN
        RAISE EXCEPTION 'send_at must be within a year' USING ERRCODE = 'invalid_parameter_value';
    END IF;
    IF ttl IS NULL OR ttl NOT BETWEEN interval '1 minute' AND interval '720 hours' THEN
        RAISE EXCEPTION 'ttl must be 1 minute to 720 hours' USING ERRCODE = 'invalid_parameter_value';
    END IF;
END
$$;
-- +goose StatementEnd

-- +goose StatementBegin
-- What is wrong with the names that say what an email is about: the CHECKs of
-- outbox_aggregates, told before they refuse.
CREATE OR REPLACE FUNCTION email_gateway_misnamed(aggregate_type text, aggregate_id text, event_type text)
RETURNS TABLE (field text, code text, message text)
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
    SELECT name, 'INVALID_NAME',
           'must have 1 to ' || longest || ' characters, begin with a letter or digit and hold only letters, digits and . _ : = ~ -'
    FROM (VALUES ('aggregate_type', aggregate_type, 64), ('aggregate_id', aggregate_id, 200), ('event_type', event_type, 64)) AS n (name, value, longest)
    WHERE (value ~ '^[A-Za-z0-9][A-Za-z0-9._:=~-]*$' AND length(value) <= longest) IS NOT TRUE
$$;
-- +goose StatementEnd

-- +goose StatementBegin
-- Where an email stands, by the primary keys of outbox and log; NULL = it is not kept.
CREATE OR REPLACE FUNCTION email_gateway_status(id uuid) RETURNS text
LANGUAGE sql VOLATILE SET search_path = pg_catalog, public, pg_temp AS $$
    SELECT coalesce((SELECT o.status FROM email_outbox o WHERE o.id = email_gateway_status.id),
                    (SELECT l.status FROM email_logs l WHERE l.outbox_id = email_gateway_status.id))
$$;
-- +goose StatementEnd

-- +goose StatementBegin
-- Takes the key for the email newcomer, unless an email has it that was not cancelled, and
-- returns the one that has it now. An email that is not kept any more has given its key
-- back. Who takes the same key at the same time waits for the end of the other's
-- transaction. All is looked up by primary key.
CREATE OR REPLACE FUNCTION email_gateway_take_key(company uuid, aggregate_type text, aggregate_id text, event_type text, newcomer uuid) RETURNS uuid
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp AS $$
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
        END IF; -- else somebody's commit was first, and is seen now
    END LOOP;
END
$$;
-- +goose StatementEnd

-- +goose StatementBegin
-- Locks an email for the rest of the transaction and says true, or finds that it is too
-- late to change it and locks nothing. A worker that would claim it meanwhile does not
-- wait: the row of outbox_aggregates, locked first, tells it to leave the email alone.
CREATE OR REPLACE FUNCTION email_gateway_hold(id uuid) RETURNS boolean
LANGUAGE plpgsql SET search_path = pg_catalog, public, pg_temp AS $$
BEGIN
    IF NOT EXISTS (SELECT FROM email_outbox o WHERE o.id = email_gateway_hold.id AND o.status IN ('PENDING', 'ENQUEUED', 'RETRY_SCHEDULED')) THEN
        RETURN false;
    END IF;
    PERFORM FROM outbox_aggregates a WHERE a.outbox_id = email_gateway_hold.id FOR UPDATE;
    PERFORM FROM email_outbox o WHERE o.id = email_gateway_hold.id FOR UPDATE;
    IF EXISTS (SELECT FROM email_outbox o WHERE o.id = email_gateway_hold.id AND o.status IN ('PENDING', 'ENQUEUED', 'RETRY_SCHEDULED')) THEN
        RETURN true;
    END IF;
    RAISE EXCEPTION 'too late' USING ERRCODE = 'EG001'; -- what is rolled back is unlocked
EXCEPTION WHEN SQLSTATE 'EG001' THEN
    RETURN false;
END
$$;
-- +goose StatementEnd

-- +goose StatementBegin
-- Writes an email into the caller's transaction. email is the body of POST /v1/email/send
-- without sendAt and aggregate; a null in it counts as left out. It is written once per
-- aggregate and event type: the second time the first one is returned, as it is, with
-- created = false. When it was cancelled, a new one is written.
CREATE OR REPLACE FUNCTION email_gateway_enqueue(
    company uuid, aggregate_type text, aggregate_id text, event_type text, email jsonb,
    send_at timestamptz DEFAULT NULL, ttl interval DEFAULT '24 hours', request_id text DEFAULT NULL
) RETURNS TABLE (outbox_id uuid, created boolean, status text)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp AS $$
DECLARE
    body jsonb := jsonb_strip_nulls(email);
    accepted_at timestamptz := date_trunc('milliseconds', clock_timestamp());
    due timestamptz := greatest(accepted_at, send_at);
    request text := coalesce(request_id, 'tx-' || pg_current_xact_id()::text);
    person uuid;
    from_address text;
    usual text;
    lane bigint;
    faults jsonb;
    newcomer uuid;
    holder uuid;
BEGIN
    PERFORM email_gateway_admit(company);
    PERFORM email_gateway_check_times(send_at, ttl);
    IF request !~ '^[!-?A-~]{1,128}$' THEN
        RAISE EXCEPTION 'request_id must have 1 to 128 printable ASCII characters without space and @' USING ERRCODE = 'invalid_parameter_value';
    END IF;
    IF jsonb_typeof(body) IS DISTINCT FROM 'object' THEN
        RAISE EXCEPTION 'email must be a JSON object' USING ERRCODE = 'invalid_parameter_value';
    END IF;
    SELECT c.default_from INTO usual FROM companies c WHERE c.id = company;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'there is no company %', company USING ERRCODE = 'no_data_found';
    END IF;

    SELECT jsonb_agg(to_jsonb(f)) INTO faults FROM email_gateway_misshapen(body) f;
    IF faults IS NULL THEN
        SELECT jsonb_agg(to_jsonb(f)) INTO faults FROM email_gateway_faults(body) f;
    END IF;
    SELECT coalesce(faults || jsonb_agg(to_jsonb(f)), faults, jsonb_agg(to_jsonb(f))) INTO faults
    FROM email_gateway_misnamed(aggregate_type, aggregate_id, event_type) f;
    IF faults IS NULL THEN
        from_address := email_gateway_normal_address(email_gateway_address_of(body ->> 'from'));
        IF NOT EXISTS (SELECT FROM sender_domains d WHERE d.company_id = company AND d.domain = split_part(from_address, '@', 2))
           AND from_address <> email_gateway_normal_address(coalesce(substring(usual FROM '<([^<>]+)>\s*$'), usual)) THEN
            faults := jsonb_build_array(jsonb_build_object('field', 'from', 'code', 'SENDER_NOT_ALLOWED',
                'message', 'is neither the company''s default sender nor of a domain registered for it'));
        END IF;
        person := (body #>> '{recipient,recipientId}')::uuid;
        IF person IS NOT NULL AND NOT EXISTS (
               SELECT FROM recipients r WHERE r.id = person AND r.company_id = company AND r.deleted_at IS NULL
                  AND email_gateway_normal_address(r.email) = email_gateway_normal_address(body ->> 'to'))
           AND NOT EXISTS (
               SELECT FROM recipient_intakes i WHERE i.recipient_id = person AND i.company_id = company
                  AND email_gateway_normal_address(i.email) = email_gateway_normal_address(body ->> 'to')) THEN
            faults := coalesce(faults, '[]') || jsonb_build_object('field', 'recipient.recipientId', 'code', 'RECIPIENT_NOT_FOUND',
                'message', 'is not a recipient of this company at this address');
        END IF;
    END IF;
    IF faults IS NOT NULL THEN
        RAISE EXCEPTION 'the email is not valid: %', (SELECT string_agg((f ->> 'field') || ' ' || (f ->> 'message'), '; ') FROM jsonb_array_elements(faults) f)
            USING ERRCODE = 'invalid_parameter_value', DETAIL = faults::text;
    END IF;

    -- A UUIDv7: the time in milliseconds, then a random UUID's bits with the version changed.
    newcomer := encode(set_bit(set_bit(overlay(uuid_send(gen_random_uuid())
                    PLACING substring(int8send((extract(epoch FROM accepted_at) * 1000)::bigint) FROM 3) FROM 1 FOR 6), 52, 1), 53, 1), 'hex')::uuid;
    holder := email_gateway_take_key(company, aggregate_type, aggregate_id, event_type, newcomer);
    IF holder <> newcomer THEN
        RETURN QUERY SELECT holder, false, email_gateway_status(holder);
        RETURN;
    END IF;
    SELECT l.id INTO lane FROM dispatch_lanes l
    WHERE l.company_id = company AND l.mailing_id IS NULL AND l.queue = CASE
        WHEN coalesce(body ->> 'priority', '5')::int <= 3 THEN 'email:send:high'
        WHEN coalesce(body ->> 'priority', '5')::int <= 7 THEN 'email:send' ELSE 'email:send:low' END;
    -- checker_version 0: nobody has looked at the html yet, so the worker will.
    INSERT INTO email_outbox (id, company_id, lane_id, request_id, sender, html, text_body, html_sha256, checker_version, priority, delivery,
                              aggregate_type, aggregate_id, event_type, created_at, next_at, expires_at, payload)
    VALUES (newcomer, company, lane, request, coalesce(body ->> 'from', usual), body ->> 'html', nullif(body ->> 'text', ''),
            sha256(convert_to(body ->> 'html', 'UTF8')), 0, coalesce(body ->> 'priority', '5')::smallint, coalesce(body ->> 'delivery', 'at_least_once'),
            email_gateway_enqueue.aggregate_type, email_gateway_enqueue.aggregate_id, email_gateway_enqueue.event_type, accepted_at, due, due + ttl,
            body - '{from,html,text,priority,delivery}'::text[]
            || jsonb_build_object('outboxId', newcomer, 'companyId', company, 'requestId', request, 'htmlRef', newcomer, 'recipient',
                   body -> 'recipient' || jsonb_strip_nulls(jsonb_build_object('recipientId', person))));
    RETURN QUERY SELECT newcomer, true, 'PENDING';
END
$$;
-- +goose StatementEnd

-- +goose StatementBegin
-- Moves an email to another time, in the caller's transaction; a time that has passed, and
-- NULL, is now. moved = false: it is too late, status says why. No row: there is no such email.
CREATE OR REPLACE FUNCTION email_gateway_reschedule(
    company uuid, aggregate_type text, aggregate_id text, event_type text, send_at timestamptz, ttl interval DEFAULT '24 hours'
) RETURNS TABLE (outbox_id uuid, moved boolean, status text)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp AS $$
DECLARE
    due timestamptz := greatest(clock_timestamp(), send_at);
    mail uuid;
    held boolean;
BEGIN
    PERFORM email_gateway_admit(company);
    PERFORM email_gateway_check_times(send_at, ttl);
    SELECT a.outbox_id INTO mail FROM outbox_aggregates a
    WHERE a.company_id = company AND a.aggregate_type = email_gateway_reschedule.aggregate_type
      AND a.aggregate_id = email_gateway_reschedule.aggregate_id AND a.event_type = email_gateway_reschedule.event_type
    ORDER BY a.turn DESC LIMIT 1;
    IF NOT FOUND THEN
        RETURN;
    END IF;
    held := email_gateway_hold(mail);
    IF held THEN
        UPDATE email_outbox o SET status = 'PENDING', next_at = due, expires_at = due + ttl WHERE o.id = mail;
    END IF;
    RETURN QUERY SELECT mail, held, email_gateway_status(mail);
END
$$;
-- +goose StatementEnd

-- +goose StatementBegin
-- Withdraws the emails about something, or the one of an event type, in the caller's
-- transaction. cancelled = false: it is too late for this one, status says why.
CREATE OR REPLACE FUNCTION email_gateway_cancel(company uuid, aggregate_type text, aggregate_id text, event_type text DEFAULT NULL)
RETURNS TABLE (outbox_id uuid, event text, cancelled boolean, status text)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp AS $$
DECLARE
    newest record;
BEGIN
    PERFORM email_gateway_admit(company);
    FOR newest IN
        SELECT n.* FROM (
            SELECT DISTINCT ON (a.event_type) a.outbox_id, a.event_type FROM outbox_aggregates a
            WHERE a.company_id = company AND a.aggregate_type = email_gateway_cancel.aggregate_type AND a.aggregate_id = email_gateway_cancel.aggregate_id
              AND (email_gateway_cancel.event_type IS NULL OR a.event_type = email_gateway_cancel.event_type)
            ORDER BY a.event_type, a.turn DESC
        ) n ORDER BY n.outbox_id -- as everybody locks them
    LOOP
        IF email_gateway_hold(newest.outbox_id) THEN
            PERFORM email_gateway_withdraw(newest.outbox_id);
        END IF;
        RETURN QUERY SELECT newest.outbox_id, newest.event_type, coalesce(s = 'CANCELLED', false), s FROM email_gateway_status(newest.outbox_id) s;
    END LOOP;
END
$$;
-- +goose StatementEnd

-- +goose StatementBegin
-- The move to CANCELLED of an email that is held: outbox row, log and event, as the
-- gateway's programs write them (advanceSQL); a test holds the two together.
CREATE OR REPLACE FUNCTION email_gateway_withdraw(id uuid) RETURNS void
LANGUAGE sql SET search_path = pg_catalog, public, pg_temp AS $$
    WITH moved AS (
        UPDATE email_outbox o SET status = 'CANCELLED', processed_at = now() WHERE o.id = email_gateway_withdraw.id RETURNING o.*
    ), logged AS (
        INSERT INTO email_logs (outbox_id, company_id, recipient_id, recipient, subject, status, attempts, throttles, request_id, external_id, tags,
                                possible_duplicate, expires_at, created_at, event_seq, last_event)
        SELECT m.id, m.company_id, (m.payload #>> '{recipient,recipientId}')::uuid, m.payload ->> 'to', m.payload ->> 'subject', m.status, m.attempts, m.throttles,
               m.request_id, m.payload #>> '{recipient,externalId}', ARRAY(SELECT jsonb_array_elements_text(coalesce(m.payload -> 'tags', '[]'))),
               m.possible_duplicate, m.expires_at, m.created_at, 1, 'CANCELLED'
        FROM moved m
        ON CONFLICT (outbox_id) DO UPDATE SET
            status = excluded.status, attempts = excluded.attempts, throttles = excluded.throttles, possible_duplicate = excluded.possible_duplicate,
            expires_at = excluded.expires_at, sent_at = NULL, failed_at = NULL, event_seq = email_logs.event_seq + 1, last_event = 'CANCELLED'
    )
    INSERT INTO email_events (email_log_id, seq, previous, type, metadata, created_at)
    SELECT m.id, coalesce(l.event_seq, 0) + 1, l.last_event, 'CANCELLED', jsonb_build_object('by', 'program', 'role', session_user), clock_timestamp()
    FROM moved m LEFT JOIN email_logs l ON l.outbox_id = m.id
$$;
-- +goose StatementEnd

-- Everybody may call a new function. These are for those whom roles.sql names.
REVOKE ALL ON FUNCTION email_gateway_is_address(text), email_gateway_normal_address(text), email_gateway_address_of(text), email_gateway_misshapen(jsonb),
    email_gateway_faults(jsonb), email_gateway_misnamed(text, text, text), email_gateway_status(uuid), email_gateway_admit(uuid), email_gateway_check_times(timestamptz, interval),
    email_gateway_take_key(uuid, text, text, text, uuid), email_gateway_hold(uuid), email_gateway_withdraw(uuid),
    email_gateway_enqueue(uuid, text, text, text, jsonb, timestamptz, interval, text),
    email_gateway_reschedule(uuid, text, text, text, timestamptz, interval), email_gateway_cancel(uuid, text, text, text) FROM PUBLIC;

RESET lock_timeout;

-- +goose Down

DROP FUNCTION email_gateway_cancel(uuid, text, text, text), email_gateway_reschedule(uuid, text, text, text, timestamptz, interval),
    email_gateway_enqueue(uuid, text, text, text, jsonb, timestamptz, interval, text), email_gateway_withdraw(uuid), email_gateway_hold(uuid),
    email_gateway_take_key(uuid, text, text, text, uuid), email_gateway_check_times(timestamptz, interval), email_gateway_admit(uuid),
    email_gateway_status(uuid), email_gateway_misnamed(text, text, text), email_gateway_faults(jsonb), email_gateway_misshapen(jsonb),
    email_gateway_address_of(text), email_gateway_normal_address(text), email_gateway_is_address(text);
DROP TABLE outbox_programs, outbox_aggregates;
DELETE FROM retention_walks WHERE kind = 'aggregates';
ALTER TABLE retention_walks DROP CONSTRAINT retention_walks_kind_check;
ALTER TABLE retention_walks ADD CONSTRAINT retention_walks_kind_check CHECK (kind IN ('outbox', 'bodies', 'logs', 'events'));
ALTER TABLE email_outbox DROP CONSTRAINT email_outbox_aggregate_is_whole;
ALTER TABLE email_outbox DROP COLUMN aggregate_type, DROP COLUMN aggregate_id, DROP COLUMN event_type;
