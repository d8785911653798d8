-- A company's emails and its imports of recipients get an index each. In one index, the list of a company's newest emails reads
-- every import that is newer, up to those of RETENTION_OUTBOX (30 days). Each row is still in one of the two, so a write
-- costs the same.
--
-- Programs of the previous release use the index that is dropped for the bodies of companies with a retention of their own and for
-- gatewayctl person: until they stop, these statements read the rows of all companies.

-- +goose NO TRANSACTION
-- +goose Up

-- The statements may be run again: what an interrupted build has left is dropped first.
DROP INDEX CONCURRENTLY IF EXISTS email_outbox_emails;
CREATE INDEX CONCURRENTLY email_outbox_emails ON email_outbox (company_id, id) WHERE target = 'email:send';
DROP INDEX CONCURRENTLY IF EXISTS email_outbox_jobs;
CREATE INDEX CONCURRENTLY email_outbox_jobs ON email_outbox (company_id, id) WHERE target <> 'email:send';
DROP INDEX CONCURRENTLY IF EXISTS email_outbox_company;

-- +goose Down

DROP INDEX CONCURRENTLY IF EXISTS email_outbox_company;
CREATE INDEX CONCURRENTLY email_outbox_company ON email_outbox (company_id, id);
DROP INDEX CONCURRENTLY IF EXISTS email_outbox_jobs;
DROP INDEX CONCURRENTLY IF EXISTS email_outbox_emails;
