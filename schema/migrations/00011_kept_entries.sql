-- The index of the mailings whose entries are past their time has those of which some are
-- left too, as the statement asks for them: Postgres takes a partial index only where the
-- statement's condition implies the index's own. With the old one it read and sorted all
-- mailings for each batch. The new one is built beside it, without stopping writes.

-- +goose NO TRANSACTION
-- +goose Up

-- What an attempt that was broken off has left is of no use.
DROP INDEX CONCURRENTLY IF EXISTS mailings_kept_new;
CREATE INDEX CONCURRENTLY mailings_kept_new ON mailings (coalesce(completed_at, updated_at))
    WHERE (entries_deleted_at IS NULL OR first_entry IS NOT NULL) AND status IN ('COMPLETED', 'CANCELLED', 'FAILED');
DROP INDEX CONCURRENTLY IF EXISTS mailings_kept;
ALTER INDEX mailings_kept_new RENAME TO mailings_kept;

-- +goose Down

DROP INDEX CONCURRENTLY IF EXISTS mailings_kept_old;
CREATE INDEX CONCURRENTLY mailings_kept_old ON mailings (coalesce(completed_at, updated_at))
    WHERE entries_deleted_at IS NULL AND status IN ('COMPLETED', 'CANCELLED', 'FAILED');
DROP INDEX CONCURRENTLY IF EXISTS mailings_kept;
ALTER INDEX mailings_kept_old RENAME TO mailings_kept;
