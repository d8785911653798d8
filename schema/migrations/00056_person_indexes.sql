-- gatewayctl person reads the recipients and the dead letters of its company, in the order of their ids, not those of all companies.

-- +goose NO TRANSACTION
-- +goose Up

-- The statements may be run again: what an interrupted build has left is dropped first.
DROP INDEX CONCURRENTLY IF EXISTS recipients_company;
CREATE INDEX CONCURRENTLY recipients_company ON recipients (company_id, id);
DROP INDEX CONCURRENTLY IF EXISTS dead_letters_person;
CREATE INDEX CONCURRENTLY dead_letters_person ON dead_letters (company_id, id);

-- +goose Down

DROP INDEX CONCURRENTLY IF EXISTS dead_letters_person;
DROP INDEX CONCURRENTLY IF EXISTS recipients_company;
