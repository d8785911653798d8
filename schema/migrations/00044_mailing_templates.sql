-- Mailings with a stored template, and mailings with text alone.
--
-- A mailing keeps a copy of the version that it was accepted with, so that neither a publication nor a deletion
-- changes it. A text mailing has '' in html.
--
-- Programs of the release before run beside this: what they accept has html and no template. Their workers
-- fail the emails of a mailing with a template that has sections or declared defaults, and of one without html, with
-- INVALID_TEMPLATE, so workers are updated before the api.

-- +goose NO TRANSACTION
-- +goose Up

-- A backup may use a table for hours. The file can be run again.
SET lock_timeout = '3s';
ALTER TABLE mailings
    ADD COLUMN IF NOT EXISTS template text,           -- name@version or name/locale@version; NULL = none, subject, html and text_body are the request's
    ADD COLUMN IF NOT EXISTS template_variables text; -- JSON: what the version declares; NULL = no template

SET lock_timeout = 0; -- an index waits for those who are writing, and nobody for it
DROP INDEX CONCURRENTLY IF EXISTS mailings_templates_kept;
CREATE INDEX CONCURRENTLY mailings_templates_kept ON mailings (coalesce(completed_at, updated_at))
    WHERE (html <> '' OR text_body IS NOT NULL) AND status IN ('COMPLETED', 'CANCELLED', 'FAILED');
DROP INDEX CONCURRENTLY IF EXISTS mailings_templates;
RESET lock_timeout;

-- +goose Down

SET lock_timeout = 0;
DROP INDEX CONCURRENTLY IF EXISTS mailings_templates;
CREATE INDEX CONCURRENTLY mailings_templates ON mailings (coalesce(completed_at, updated_at))
    WHERE html <> '' AND status IN ('COMPLETED', 'CANCELLED', 'FAILED');
DROP INDEX CONCURRENTLY IF EXISTS mailings_templates_kept;
SET lock_timeout = '3s';
ALTER TABLE mailings DROP COLUMN IF EXISTS template_variables, DROP COLUMN IF EXISTS template;
RESET lock_timeout;
