-- Stored templates: versions that never change, one of which is published per name and locale, and
-- which template an email was made from.
--
-- Programs of the release before run beside this: they neither read nor write these tables and columns.

-- +goose Up

SET LOCAL lock_timeout = '3s'; -- a backup may use the tables for hours

CREATE TABLE templates (
    company_id uuid NOT NULL REFERENCES companies,
    name       text NOT NULL CHECK (name ~ '^[a-z0-9][a-z0-9._-]{0,63}$'),
    locale     text NOT NULL CHECK (length(locale) <= 16), -- '' = the default
    latest     integer NOT NULL CHECK (latest > 0),        -- the number of the newest version ever created
    published  integer,                                    -- NULL = none
    deleted_at timestamptz,                                -- it has no versions; a new one continues the numbers
    updated_at timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (company_id, name, locale)
);

CREATE TABLE template_versions (
    company_id uuid NOT NULL,
    name       text NOT NULL,
    locale     text NOT NULL,
    version    integer NOT NULL,
    subject    text NOT NULL,
    html       text NOT NULL, -- '' = none
    text_body  text NOT NULL, -- '' = none
    variables  text NOT NULL, -- JSON
    sha256     bytea NOT NULL CHECK (length(sha256) = 32), -- of the four columns before
    created_by text NOT NULL,                              -- key:<id>
    created_at timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (company_id, name, locale, version),
    FOREIGN KEY (company_id, name, locale) REFERENCES templates
);

-- Who created, published and deleted what.
CREATE TABLE template_events (
    id         bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    company_id uuid NOT NULL REFERENCES companies,
    name       text NOT NULL,
    locale     text NOT NULL,
    version    integer, -- NULL = all, of a deletion
    action     text NOT NULL CHECK (action IN ('CREATED', 'PUBLISHED', 'DELETED')),
    actor      text NOT NULL,
    at         timestamptz NOT NULL DEFAULT now()
);
CREATE INDEX template_events_template ON template_events (company_id, name, id);

-- What a company's versions take up. Its row is also the lock of those who create or delete some.
CREATE TABLE template_totals (
    company_id uuid PRIMARY KEY REFERENCES companies,
    versions   bigint NOT NULL,
    bytes      bigint NOT NULL
);

-- name@version or name/locale@version; NULL = none.
ALTER TABLE email_outbox ADD COLUMN template text;
ALTER TABLE email_logs ADD COLUMN template text;

-- The log keeps what the outbox row says of its template, whichever program deletes the row.
-- +goose StatementBegin
CREATE FUNCTION email_gateway_keep_template() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp SET standard_conforming_strings = on AS $$
BEGIN
    UPDATE email_logs SET template = OLD.template WHERE outbox_id = OLD.id AND company_id = OLD.company_id;
    RETURN NULL;
END
$$;
-- +goose StatementEnd
REVOKE ALL ON FUNCTION email_gateway_keep_template() FROM PUBLIC;
CREATE TRIGGER email_outbox_keep_template AFTER DELETE ON email_outbox
    FOR EACH ROW WHEN (OLD.template IS NOT NULL) EXECUTE FUNCTION email_gateway_keep_template();

-- +goose Down

DROP TRIGGER email_outbox_keep_template ON email_outbox;
DROP FUNCTION email_gateway_keep_template();
ALTER TABLE email_logs DROP COLUMN template;
ALTER TABLE email_outbox DROP COLUMN template;
DROP TABLE template_totals;
DROP TABLE template_events;
DROP TABLE template_versions;
DROP TABLE templates;
