-- Counts the emails that one transaction enqueues where they are enqueued, in
-- email_gateway_enqueue, instead of in the trigger that counts emails toward quotas. The trigger
-- runs for each commit of the api too, which has one statement per transaction, and looking for
-- the transaction's previous row was 40 of its 90 µs.
--
-- email_gateway_enqueue is changed by its text, as in 00032.

-- +goose Up

-- +goose StatementBegin
-- Counts emails that were inserted. One that a program writes is due at the time of its
-- acceptance, which is later than the beginning of its transaction.
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

-- +goose StatementBegin
DO $do$
DECLARE
    definition text := pg_get_functiondef('email_gateway_enqueue(uuid, text, text, text, jsonb, timestamptz, interval, text)'::regprocedure);
    before CONSTANT text := '    PERFORM email_gateway_transaction_writes(company);';
BEGIN
    IF strpos(definition, before) = 0 THEN
        RAISE EXCEPTION 'email_gateway_enqueue does not contain: %', before;
    END IF;
    EXECUTE replace(definition, before,
        '    INSERT INTO quota_deltas (company_id, transaction_writes) VALUES (company, email_gateway_transaction_writes(company) + 1);');
END
$do$;
-- +goose StatementEnd

-- +goose Down

-- +goose StatementBegin
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
DO $do$
BEGIN
    EXECUTE replace(pg_get_functiondef('email_gateway_enqueue(uuid, text, text, text, jsonb, timestamptz, interval, text)'::regprocedure),
        '    INSERT INTO quota_deltas (company_id, transaction_writes) VALUES (company, email_gateway_transaction_writes(company) + 1);',
        '    PERFORM email_gateway_transaction_writes(company);');
END
$do$;
-- +goose StatementEnd
