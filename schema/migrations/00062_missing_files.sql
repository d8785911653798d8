-- Files whose object is missing from the storage, or damaged.
--
-- A worker that cannot read a file sets the time, and one that can read it again removes it: emails wait some minutes before they
-- fail, so that a fault of the storage that passes fails none. The api stores the content again when a company sends it again.
-- Until now the row of a lost object stayed in use, and each email with this content failed.
--
-- Programs of the previous release do not use the column.

-- +goose Up

SET LOCAL lock_timeout = '3s';

ALTER TABLE stored_files ADD COLUMN missing_since timestamptz; -- NULL = the object was there at the last read

-- +goose Down

SET LOCAL lock_timeout = '3s';

ALTER TABLE stored_files DROP COLUMN missing_since;
