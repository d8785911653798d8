-- Failed mailings end: the dispatcher cancels those without an open dead letter.
--
-- Until now the waiting emails, the entries and the templates of a failed mailing that was not resumed were kept without a limit.
-- Programs of the previous release do not use the index.

-- +goose NO TRANSACTION
-- +goose Up

SET lock_timeout = 0; -- a concurrent build waits for transactions that write, and blocks none
DROP INDEX CONCURRENTLY IF EXISTS mailings_failed;
CREATE INDEX CONCURRENTLY mailings_failed ON mailings (id) WHERE status = 'FAILED' AND entries_deleted_at IS NULL;
RESET lock_timeout;

-- +goose Down

SET lock_timeout = 0;
DROP INDEX CONCURRENTLY IF EXISTS mailings_failed;
RESET lock_timeout;
