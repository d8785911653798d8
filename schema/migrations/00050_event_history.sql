-- The history of the database to which the newest position of the event feed belongs.
--
-- A database that is restored to an earlier time, and a standby that is promoted without the last commits, would assign
-- the lost positions again: readers whose cursors are behind these would miss the new events. The dispatcher now compares
-- the history with this one before it assigns positions, and leaves out the positions that may be lost.
--
-- Dispatchers of the previous release neither compare nor write it.

-- +goose Up

SET LOCAL lock_timeout = '3s';

ALTER TABLE event_positions ADD COLUMN history text; -- of email_gateway_history; NULL = not compared yet

-- +goose StatementBegin
-- Names the history of this database. A promoted standby has another timeline, also after a restore to a point in time.
-- After a restore of a dump another server has another identifier, and on the same server the table has another oid. The
-- timeline of the current segment is that of the last promotion; the one in the control file is that of the last checkpoint.
-- Where a role or a provider may not call these functions, only dumps are noticed.
CREATE FUNCTION email_gateway_history() RETURNS text
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, public, pg_temp SET standard_conforming_strings = on AS $$
DECLARE
    here text := 'public.event_positions'::regclass::oid;
BEGIN
    RETURN format('%s.%s.%s', here, (SELECT system_identifier FROM pg_control_system()), left(pg_walfile_name(pg_current_wal_lsn()), 8));
EXCEPTION WHEN insufficient_privilege OR feature_not_supported OR undefined_function
    OR object_not_in_prerequisite_state THEN -- the last of a standby, on which nothing is written
    RETURN here;
END
$$;
-- +goose StatementEnd
REVOKE ALL ON FUNCTION email_gateway_history() FROM PUBLIC;

-- +goose Down

SET LOCAL lock_timeout = '3s';

DROP FUNCTION email_gateway_history();
ALTER TABLE event_positions DROP COLUMN history;
