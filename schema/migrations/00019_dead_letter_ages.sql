-- Dead letters of emails are kept for seven days, those of mailings and recipients for
-- thirty. The former are found by an index of their own: dead_letters_age would lead through
-- the others, which stay.
--
-- Programs of the release before run beside this: they read no index by its name. Their
-- cleaner deletes every dead letter after seven days, as it did.

-- +goose NO TRANSACTION
-- +goose Up

-- The statement may be run again: what a broken build has left is dropped first.
DROP INDEX CONCURRENTLY IF EXISTS dead_letters_of_emails;
CREATE INDEX CONCURRENTLY dead_letters_of_emails ON dead_letters (created_at) WHERE target NOT IN ('mailing.process', 'recipients.upsert');

-- +goose Down

DROP INDEX CONCURRENTLY dead_letters_of_emails;
