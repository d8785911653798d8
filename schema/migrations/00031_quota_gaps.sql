-- Templates of mailings count toward stored_body_bytes, as the bodies of emails do: a mailing
-- keeps up to 1 MiB of html and text. The dispatcher blanks them some time after the mailing
-- has ended; mailings_templates lists those that it has to look at.
--
-- The functions for programs take the lock of their company's quotas, as the api does, where the
-- company is close to one. Open transactions do not see each other's emails, so each of them
-- could use all that was left.

-- +goose NO TRANSACTION
-- +goose Up

-- A backup may use a table for hours. The file can be run again.
SET lock_timeout = '3s';

-- +goose StatementBegin
CREATE OR REPLACE FUNCTION email_gateway_count_templates() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp SET standard_conforming_strings = on AS $$
BEGIN
    INSERT INTO quota_deltas (company_id, body_bytes)
    VALUES (coalesce(new.company_id, old.company_id), coalesce(octet_length(new.html), 0) + coalesce(octet_length(new.text_body), 0)
                                                    - coalesce(octet_length(old.html), 0) - coalesce(octet_length(old.text_body), 0));
    RETURN NULL;
END
$$;
-- +goose StatementEnd
REVOKE ALL ON FUNCTION email_gateway_count_templates() FROM PUBLIC;

-- What is there already is counted once, in the transaction that adds the triggers: they lock
-- mailings against writes, so each mailing is counted here or by a trigger. octet_length reads
-- no template from its TOAST table.
-- +goose StatementBegin
DO $$
BEGIN
    IF EXISTS (SELECT FROM pg_trigger WHERE tgrelid = 'mailings'::regclass AND tgname = 'mailings_count_changed') THEN
        RETURN;
    END IF;
    CREATE TRIGGER mailings_count_added AFTER INSERT OR DELETE ON mailings FOR EACH ROW EXECUTE FUNCTION email_gateway_count_templates();
    CREATE TRIGGER mailings_count_changed AFTER UPDATE OF html, text_body ON mailings FOR EACH ROW
        WHEN (octet_length(old.html) IS DISTINCT FROM octet_length(new.html) OR octet_length(old.text_body) IS DISTINCT FROM octet_length(new.text_body))
        EXECUTE FUNCTION email_gateway_count_templates();
    INSERT INTO quota_deltas (company_id, body_bytes)
    SELECT company_id, sum(octet_length(html) + coalesce(octet_length(text_body), 0)) FROM mailings GROUP BY company_id;
END
$$;
-- +goose StatementEnd

-- +goose StatementBegin
-- Every company has a row to lock: one that a program's open transaction added would block
-- all who add the same, until that transaction ends.
CREATE OR REPLACE FUNCTION email_gateway_add_quota_total() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp SET standard_conforming_strings = on AS $$
BEGIN
    INSERT INTO quota_totals (company_id) VALUES (new.id) ON CONFLICT DO NOTHING;
    RETURN NULL;
END
$$;
-- +goose StatementEnd
CREATE OR REPLACE TRIGGER companies_add_quota_total AFTER INSERT ON companies FOR EACH ROW EXECUTE FUNCTION email_gateway_add_quota_total();
INSERT INTO quota_totals (company_id) SELECT id FROM companies ORDER BY id ON CONFLICT DO NOTHING;

-- +goose StatementBegin
-- Locks the company's row of quota_totals, by primary key, until the end of the transaction.
CREATE OR REPLACE FUNCTION email_gateway_hold_quotas(company uuid) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp SET standard_conforming_strings = on SET lock_timeout = '200ms' AS $$
BEGIN
    PERFORM FROM quota_totals t WHERE t.company_id = company FOR UPDATE;
EXCEPTION
    WHEN lock_not_available THEN
        RAISE EXCEPTION 'the company is close to a quota, and another open transaction is using what is left'
            USING ERRCODE = 'lock_not_available', HINT = 'Roll back and try again.';
END
$$;
-- +goose StatementEnd
REVOKE ALL ON FUNCTION email_gateway_add_quota_total(), email_gateway_hold_quotas(uuid) FROM PUBLIC;

-- +goose StatementBegin
-- Refuses an email of a program that would exceed a quota of its company. Somebody new, told by
-- adds_person, is refused when the company's recipients are all there may be.
--
-- Close to a quota it first locks the company's quotas (lock_not_available after 200 ms). Close
-- is what the api takes for it: less than a quarter of the limit, 20,000 rows or 1 GiB is left;
-- or this transaction alone has added more than a 64th of what is left, so that some 60 open
-- transactions which have no lock do not exceed the quota together. In a transaction that is
-- REPEATABLE READ the lock fails with 40001 if the use was folded meanwhile.
--
-- The number of scheduled emails does not go down by itself, so under the lock it is counted
-- anew, at most once a second: a company is not taken for close because of emails long sent.
CREATE OR REPLACE FUNCTION email_gateway_check_quotas(company uuid, scheduled bigint, emails bigint, body_bytes bigint, adds_person boolean) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp SET standard_conforming_strings = on AS $$
DECLARE
    u record;
BEGIN
    PERFORM FROM (
        SELECT coalesce(sum(d.scheduled), 0) AS scheduled, coalesce(sum(d.emails), 0) AS emails, coalesce(sum(d.body_bytes), 0) AS body_bytes
        FROM quota_deltas d WHERE d.company_id = company AND d.xid = pg_current_xact_id_if_assigned()
    ) o CROSS JOIN LATERAL (VALUES
        ('scheduled_emails', email_gateway_check_quotas.scheduled, o.scheduled, 20000), ('emails_per_day', email_gateway_check_quotas.emails, o.emails, 20000),
        ('stored_body_bytes', email_gateway_check_quotas.body_bytes, o.body_bytes, 1 << 30), ('recipients', email_gateway_check_quotas.adds_person::int, 0, 20000)
    ) AS w (quota, more, own, margin) JOIN email_gateway_use(company, false) e ON e.quota = w.quota
    WHERE e.most > 0 AND w.more > 0 AND (e.most - e.used - w.more < greatest(e.most / 4, w.margin) OR w.own > (e.most - e.used) / 64);
    IF NOT FOUND THEN
        RETURN;
    END IF;
    PERFORM email_gateway_hold_quotas(company);
    UPDATE quota_totals t SET scheduled_at = clock_timestamp(),
        scheduled = email_gateway_scheduled(company) - (SELECT coalesce(sum(d.scheduled), 0) FROM quota_deltas d WHERE d.company_id = company)
    WHERE email_gateway_check_quotas.scheduled > 0 AND t.company_id = company
      AND coalesce(t.scheduled_at + interval '1 s' + greatest(t.scheduled, 0) * interval '10 us' < clock_timestamp(), true);
    FOR u IN
        SELECT e.quota, e.most, e.used, e.resets_at, CASE e.quota WHEN 'scheduled_emails' THEN scheduled WHEN 'emails_per_day' THEN emails
               WHEN 'stored_body_bytes' THEN body_bytes WHEN 'recipients' THEN adds_person::int ELSE 0 END AS more
        FROM email_gateway_use(company, false) e
    LOOP
        CONTINUE WHEN u.most = 0 OR u.more = 0 OR u.used + u.more <= u.most;
        IF u.quota = 'scheduled_emails' THEN
            u.used := email_gateway_scheduled(company);
            CONTINUE WHEN u.used + u.more <= u.most;
        END IF;
        RAISE EXCEPTION 'quota % is exceeded: limit %, use %, reset %', u.quota, u.most, u.used,
            coalesce(to_char(u.resets_at AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS"Z"'), 'none')
            USING ERRCODE = 'EG429', DETAIL = jsonb_build_object('quota', u.quota, 'limit', u.most, 'use', u.used, 'reset', u.resets_at);
    END LOOP;
END
$$;
-- +goose StatementEnd

SET lock_timeout = 0; -- an index waits for those who are writing, and nobody for it
DROP INDEX CONCURRENTLY IF EXISTS mailings_templates;
CREATE INDEX CONCURRENTLY mailings_templates ON mailings (coalesce(completed_at, updated_at))
    WHERE html <> '' AND status IN ('COMPLETED', 'CANCELLED', 'FAILED');
RESET lock_timeout;

-- +goose Down

-- +goose StatementBegin
-- Refuses an email of a program that would exceed a quota of its company. It waits for no
-- other transaction, so programs that write at the same time may exceed a quota by what
-- they have not committed yet. Somebody new, told by adds_person, is refused when the
-- company's recipients are all there may be.
CREATE OR REPLACE FUNCTION email_gateway_check_quotas(company uuid, scheduled bigint, emails bigint, body_bytes bigint, adds_person boolean) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp SET standard_conforming_strings = on AS $$
DECLARE
    u record;
BEGIN
    FOR u IN
        SELECT e.quota, e.most, e.used, e.resets_at, CASE e.quota WHEN 'scheduled_emails' THEN scheduled WHEN 'emails_per_day' THEN emails
               WHEN 'stored_body_bytes' THEN body_bytes WHEN 'recipients' THEN adds_person::int ELSE 0 END AS more
        FROM email_gateway_use(company, false) e
    LOOP
        CONTINUE WHEN u.most = 0 OR u.more = 0 OR u.used + u.more <= u.most;
        IF u.quota = 'scheduled_emails' THEN
            u.used := email_gateway_scheduled(company);
            CONTINUE WHEN u.used + u.more <= u.most;
        END IF;
        RAISE EXCEPTION 'quota % is exceeded: limit %, use %, reset %', u.quota, u.most, u.used,
            coalesce(to_char(u.resets_at AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS"Z"'), 'none')
            USING ERRCODE = 'EG429', DETAIL = jsonb_build_object('quota', u.quota, 'limit', u.most, 'use', u.used, 'reset', u.resets_at);
    END LOOP;
END
$$;
-- +goose StatementEnd
DROP TRIGGER IF EXISTS companies_add_quota_total ON companies;
DROP FUNCTION IF EXISTS email_gateway_hold_quotas(uuid), email_gateway_add_quota_total();
DROP INDEX CONCURRENTLY IF EXISTS mailings_templates;
-- +goose StatementBegin
DO $$
BEGIN
    IF EXISTS (SELECT FROM pg_trigger WHERE tgrelid = 'mailings'::regclass AND tgname = 'mailings_count_changed') THEN
        DROP TRIGGER mailings_count_added ON mailings;
        DROP TRIGGER mailings_count_changed ON mailings;
        INSERT INTO quota_deltas (company_id, body_bytes)
        SELECT company_id, -sum(octet_length(html) + coalesce(octet_length(text_body), 0)) FROM mailings GROUP BY company_id;
    END IF;
END
$$;
-- +goose StatementEnd
DROP FUNCTION IF EXISTS email_gateway_count_templates();
