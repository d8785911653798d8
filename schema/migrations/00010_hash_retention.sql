-- The number of a person, as a hash and encrypted, has an age of its own; and so have the
-- values of a mailing's entries that never became emails.
--
-- No index comes with it. Recipients, entries and the outbox are gone through along their
-- primary keys, once a day: an index of recipients.updated_at would be written with every
-- email, whose update of its recipient stays within the row's page today (HOT).

-- +goose Up

ALTER TABLE company_retention ADD COLUMN hashes_days integer CHECK (hashes_days BETWEEN 1 AND 3650);

ALTER TABLE retention_walks DROP CONSTRAINT retention_walks_kind_check;
ALTER TABLE retention_walks ADD CONSTRAINT retention_walks_kind_check CHECK (kind IN (
    'outbox', 'bodies', 'logs', 'events', 'aggregates', 'entryValues', 'entryHashes', 'outboxHashes', 'recipientHashes'));

-- +goose Down

DELETE FROM retention_walks WHERE kind IN ('entryValues', 'entryHashes', 'outboxHashes', 'recipientHashes');
ALTER TABLE retention_walks DROP CONSTRAINT retention_walks_kind_check;
ALTER TABLE retention_walks ADD CONSTRAINT retention_walks_kind_check CHECK (kind IN ('outbox', 'bodies', 'logs', 'events', 'aggregates'));
ALTER TABLE company_retention DROP COLUMN hashes_days;
