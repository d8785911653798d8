-- A row of a mailing that leaves a field of the templates empty is reported. It is sent all
-- the same, so it is an entry, and says of itself which columns these are.
--
-- Programs of the release before run beside this: they write neither column and read the
-- subject and the fields as they are stored, in which every default is settled.

-- +goose Up

-- A backup may use the tables for hours; everything would queue up behind this lock.
SET LOCAL lock_timeout = '3s';

ALTER TABLE mailing_entries ADD COLUMN empty_fields text[]; -- names of columns; NULL = none is empty
ALTER TABLE mailings
    ADD COLUMN empty_fields integer NOT NULL DEFAULT 0, -- accepted lines with any
    ADD COLUMN subject_written text;                    -- the subject with its defaults, as the tenant wrote it; NULL = it has none

-- +goose Down

ALTER TABLE mailings DROP COLUMN subject_written, DROP COLUMN empty_fields;
ALTER TABLE mailing_entries DROP COLUMN empty_fields;
