-- The identity of the installation, which the api writes to the file storage: a program whose STORAGE_URL names another
-- storage, or the empty folder of a disk that is not mounted, finds no file and no marker either, and does not take the files
-- as missing or deleted (shared/blob).
--
-- A database restored from a dump of this table has the same id; one restored from an older dump gets another id until an
-- operator gives it the one that the storage has (OPERATIONS.md). gatewayctl installation detach gives a copy of the database another id.
--
-- Programs of the previous release do not read the table.

-- +goose Up

CREATE TABLE installation (
    singleton         boolean PRIMARY KEY DEFAULT true CHECK (singleton),
    id                uuid NOT NULL DEFAULT gen_random_uuid(),
    storage_marked_at timestamptz -- when the api first found the marker in its storage; NULL = no program requires a marker yet
);
INSERT INTO installation DEFAULT VALUES;

-- +goose Down

DROP TABLE installation;
