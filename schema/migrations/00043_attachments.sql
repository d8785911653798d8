-- Attachments: files that a company has stored, once per content, and which email or mailing
-- attaches them under which name. The content is an encrypted object files/<company>/<id> in the
-- file storage.
--
-- An attachment locks its file FOR KEY SHARE until its own commit, by its foreign key and before
-- that by the statement that accepts the email. A file is deleted only under its row's lock FOR
-- UPDATE, after a look for attachments that begins when the lock is held. So neither can miss the
-- other.
--
-- Programs of the release before delete and blank rows of email_outbox and mailings: triggers
-- remove the attachments. Their workers would send an email without its attachments: update the
-- workers before the apis.

-- +goose Up

SET LOCAL lock_timeout = '3s'; -- a backup may use the tables for hours

CREATE TABLE stored_files (
    id         uuid PRIMARY KEY, -- UUIDv7
    company_id uuid NOT NULL REFERENCES companies,
    sha256     bytea NOT NULL CHECK (length(sha256) = 32),
    size       bigint NOT NULL CHECK (size > 0),      -- bytes of the content
    bytes      bigint NOT NULL CHECK (bytes >= size), -- bytes of the encrypted object
    media_type text NOT NULL,                         -- detected in the content
    created_at timestamptz NOT NULL DEFAULT now(),
    used_at    timestamptz NOT NULL DEFAULT now(),    -- when it was last uploaded; '-infinity' = it can be deleted now
    UNIQUE (company_id, sha256),
    UNIQUE (company_id, id)
);
CREATE INDEX stored_files_used ON stored_files (used_at);

CREATE TABLE attachments (
    owner_id     uuid NOT NULL,     -- an email in email_outbox, or a mailing
    position     smallint NOT NULL CHECK (position BETWEEN 0 AND 9),
    company_id   uuid NOT NULL,
    file_id      uuid NOT NULL,
    filename     text NOT NULL CHECK (length(filename) BETWEEN 1 AND 255),
    content_type text NOT NULL CHECK (length(content_type) BETWEEN 1 AND 78),
    content_id   text CHECK (length(content_id) BETWEEN 1 AND 78),
    disposition  text NOT NULL CHECK (disposition IN ('attachment', 'inline')),
    PRIMARY KEY (owner_id, position),
    FOREIGN KEY (company_id, file_id) REFERENCES stored_files (company_id, id)
);
CREATE INDEX attachments_file ON attachments (company_id, file_id);

-- How many attachments the row has; NULL = none.
ALTER TABLE email_outbox ADD COLUMN attachments smallint;
ALTER TABLE mailings ADD COLUMN attachments smallint;

-- Removes the attachments of a row that is deleted or whose content is erased. The row stays the
-- owner's: nobody adds an attachment to it afterwards.
-- +goose StatementBegin
CREATE FUNCTION email_gateway_drop_attachments() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp SET standard_conforming_strings = on AS $$
BEGIN
    DELETE FROM attachments WHERE owner_id = OLD.id AND company_id = OLD.company_id;
    RETURN NULL;
END
$$;
-- +goose StatementEnd
REVOKE ALL ON FUNCTION email_gateway_drop_attachments() FROM PUBLIC;
CREATE TRIGGER email_outbox_drop_attachments AFTER DELETE ON email_outbox
    FOR EACH ROW WHEN (OLD.attachments IS NOT NULL) EXECUTE FUNCTION email_gateway_drop_attachments();
CREATE TRIGGER email_outbox_erase_attachments AFTER UPDATE OF body_erased_at ON email_outbox
    FOR EACH ROW WHEN (OLD.attachments IS NOT NULL AND NEW.body_erased_at IS NOT NULL) EXECUTE FUNCTION email_gateway_drop_attachments();
CREATE TRIGGER mailings_drop_attachments AFTER DELETE ON mailings
    FOR EACH ROW WHEN (OLD.attachments IS NOT NULL) EXECUTE FUNCTION email_gateway_drop_attachments();
CREATE TRIGGER mailings_erase_attachments AFTER UPDATE OF html ON mailings
    FOR EACH ROW WHEN (OLD.attachments IS NOT NULL AND OLD.html <> '' AND NEW.html = '') EXECUTE FUNCTION email_gateway_drop_attachments();

-- Files count towards stored_file_bytes. The function is changed in place, whatever its other lines are.
-- +goose StatementBegin
DO $$
DECLARE
    was text := pg_get_functiondef('email_gateway_use(uuid, boolean)'::regprocedure);
    is_now text;
BEGIN
    is_now := replace(was, 'm.file_bytes > 0) ELSE',
        'm.file_bytes > 0) + (SELECT coalesce(sum(f.bytes), 0)::bigint FROM stored_files f WHERE f.company_id = company) ELSE');
    IF is_now = was THEN
        RAISE EXCEPTION 'email_gateway_use is not the function that this migration knows';
    END IF;
    EXECUTE is_now;
END
$$;
-- +goose StatementEnd

-- +goose Down

-- +goose StatementBegin
DO $$
BEGIN
    EXECUTE replace(pg_get_functiondef('email_gateway_use(uuid, boolean)'::regprocedure),
        ' + (SELECT coalesce(sum(f.bytes), 0)::bigint FROM stored_files f WHERE f.company_id = company) ELSE', ' ELSE');
END
$$;
-- +goose StatementEnd
DROP TRIGGER mailings_erase_attachments ON mailings;
DROP TRIGGER mailings_drop_attachments ON mailings;
DROP TRIGGER email_outbox_erase_attachments ON email_outbox;
DROP TRIGGER email_outbox_drop_attachments ON email_outbox;
DROP FUNCTION email_gateway_drop_attachments();
ALTER TABLE mailings DROP COLUMN attachments;
ALTER TABLE email_outbox DROP COLUMN attachments;
DROP TABLE attachments;
DROP TABLE stored_files;
