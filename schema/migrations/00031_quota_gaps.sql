-- Templates of mailings count toward stored_body_bytes, as the bodies of emails do: a mailing
-- keeps up to 1 MiB of html and text. The dispatcher blanks them some time after the mailing
-- has ended; mailings_templates lists those that it has to look at.

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

SET lock_timeout = 0; -- an index waits for those who are writing, and nobody for it
DROP INDEX CONCURRENTLY IF EXISTS mailings_templates;
CREATE INDEX CONCURRENTLY mailings_templates ON mailings (coalesce(completed_at, updated_at))
    WHERE html <> '' AND status IN ('COMPLETED', 'CANCELLED', 'FAILED');
RESET lock_timeout;

-- +goose Down

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
