-- Stores with an erasure that is not complete what it has changed so far. An erasure that continues
-- it after a crash prints these rows in its receipt too: it does not find them again.
--
-- Programs of the release before run beside this: they do not name the column.

-- +goose Up

SET LOCAL lock_timeout = '3s'; -- a backup may use the table for hours

-- NULL = nothing yet.
ALTER TABLE person_erasures ADD COLUMN receipt jsonb;

-- +goose Down

ALTER TABLE person_erasures DROP COLUMN receipt;
