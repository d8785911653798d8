-- Bounds what one transaction of a program writes for a company: 10,000 emails enqueued, moved
-- or withdrawn. Until the transaction ends, dispatchers read its index entries and locked rows
-- whenever they look for due rows of the company, and find nothing to take.
--
-- quota_deltas counts, since it has a row for most of these writes anyway: the last row of a
-- transaction says how many there are so far. A setting of the transaction would be faster, but
-- the program could set it back.
--
-- Programs of the release before run beside this: they do not name the column.
--
-- email_gateway_enqueue, email_gateway_reschedule and email_gateway_cancel are changed by their
-- text, as in 00025.

-- +goose Up

SET LOCAL lock_timeout = '3s'; -- a backup may use the table for hours

-- NULL = of a write that is not bounded.
ALTER TABLE quota_deltas ADD COLUMN transaction_writes bigint;

-- +goose StatementBegin
-- Counts emails that were inserted. One that a program writes is due at the time of its
-- acceptance, which is later than the beginning of its transaction. The transaction's last row
-- is found by quota_deltas_pkey.
CREATE OR REPLACE FUNCTION email_gateway_count_added_emails() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp SET standard_conforming_strings = on AS $$
BEGIN
    INSERT INTO quota_deltas (company_id, emails, scheduled, body_bytes, transaction_writes)
    SELECT company_id, count(*), count(*) FILTER (WHERE next_at > greatest(now(), created_at)),
           sum(coalesce(octet_length(html), 0) + coalesce(octet_length(text_body), 0)),
           count(*) + coalesce((SELECT d.transaction_writes FROM quota_deltas d
                                WHERE d.company_id = added.company_id AND d.xid = pg_current_xact_id() AND d.transaction_writes IS NOT NULL
                                ORDER BY d.id DESC LIMIT 1), 0)
    FROM added WHERE target = 'email:send' GROUP BY company_id;
    RETURN NULL;
END
$$;
-- +goose StatementEnd

-- +goose StatementBegin
-- How many emails the transaction has written for the company, found by quota_deltas_pkey. It
-- refuses another one where these are as many as may be.
CREATE FUNCTION email_gateway_transaction_writes(company uuid) RETURNS bigint
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp SET standard_conforming_strings = on AS $$
DECLARE
    most CONSTANT bigint := 10000;
    written bigint;
BEGIN
    SELECT d.transaction_writes INTO written FROM quota_deltas d
    WHERE d.company_id = company AND d.xid = pg_current_xact_id() AND d.transaction_writes IS NOT NULL
    ORDER BY d.id DESC LIMIT 1;
    IF written >= most THEN
        RAISE EXCEPTION 'the transaction has enqueued, moved or withdrawn % emails of the company, which is the limit: commit it, and go on in another transaction', written
            USING ERRCODE = 'EG413', DETAIL = jsonb_build_object('limit', most);
    END IF;
    RETURN coalesce(written, 0);
END
$$;
-- +goose StatementEnd
REVOKE ALL ON FUNCTION email_gateway_transaction_writes(uuid) FROM PUBLIC;

-- +goose StatementBegin
DO $do$
DECLARE
    c record;
    definition text;
BEGIN
    FOR c IN SELECT * FROM (VALUES
        ('email_gateway_enqueue(uuid, text, text, text, jsonb, timestamptz, interval, text)',
         '    PERFORM email_gateway_check_quotas(company, ',
         E'    PERFORM email_gateway_transaction_writes(company);\n'),
        ('email_gateway_reschedule(uuid, text, text, text, timestamptz, interval)',
         '        PERFORM email_gateway_schedule(company, ',
         E'        INSERT INTO quota_deltas (company_id, transaction_writes) VALUES (company, email_gateway_transaction_writes(company) + 1);\n'),
        ('email_gateway_cancel(uuid, text, text, text)',
         '            PERFORM email_gateway_withdraw(',
         E'            INSERT INTO quota_deltas (company_id, transaction_writes) VALUES (company, email_gateway_transaction_writes(company) + 1);\n')
    ) AS changes (routine, before, bound) LOOP
        definition := pg_get_functiondef(c.routine::regprocedure);
        IF strpos(definition, c.before) = 0 THEN
            RAISE EXCEPTION '% does not hold: %', c.routine, c.before;
        END IF;
        EXECUTE replace(definition, c.before, c.bound || c.before);
    END LOOP;
END
$do$;
-- +goose StatementEnd

-- +goose Down

-- +goose StatementBegin
DO $do$
DECLARE
    routine text;
BEGIN
    FOREACH routine IN ARRAY ARRAY[
        'email_gateway_enqueue(uuid, text, text, text, jsonb, timestamptz, interval, text)',
        'email_gateway_reschedule(uuid, text, text, text, timestamptz, interval)',
        'email_gateway_cancel(uuid, text, text, text)'
    ] LOOP
        EXECUTE regexp_replace(pg_get_functiondef(routine::regprocedure), '\n[^\n]*email_gateway_transaction_writes\([^\n]*', '', 'g');
    END LOOP;
END
$do$;
-- +goose StatementEnd
-- +goose StatementBegin
CREATE OR REPLACE FUNCTION email_gateway_count_added_emails() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp SET standard_conforming_strings = on AS $$
BEGIN
    INSERT INTO quota_deltas (company_id, emails, scheduled, body_bytes)
    SELECT company_id, count(*), count(*) FILTER (WHERE next_at > greatest(now(), created_at)),
           sum(coalesce(octet_length(html), 0) + coalesce(octet_length(text_body), 0))
    FROM added WHERE target = 'email:send' GROUP BY company_id;
    RETURN NULL;
END
$$;
-- +goose StatementEnd
DROP FUNCTION email_gateway_transaction_writes(uuid);
ALTER TABLE quota_deltas DROP COLUMN transaction_writes;
