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
-- A part is missing where a role or a provider may not call its function: without the timeline, which Aurora refuses, a
-- promotion or a restore to a point in time is not noticed, and the operator sets history to NULL (OPERATIONS.md).
CREATE FUNCTION email_gateway_history() RETURNS text
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, public, pg_temp SET standard_conforming_strings = on AS $$
DECLARE
    server text;
    timeline text;
BEGIN
    BEGIN
        SELECT system_identifier INTO server FROM pg_control_system();
    EXCEPTION WHEN insufficient_privilege OR feature_not_supported OR undefined_function THEN
        NULL;
    END;
    BEGIN
        timeline := left(pg_walfile_name(pg_current_wal_lsn()), 8);
    EXCEPTION WHEN insufficient_privilege OR feature_not_supported OR undefined_function
        OR object_not_in_prerequisite_state THEN -- the last of Aurora, and of a standby, on which nothing is written
        NULL;
    END;
    RETURN concat_ws('.', 'public.event_positions'::regclass::oid, server, timeline);
END
$$;
-- +goose StatementEnd
REVOKE ALL ON FUNCTION email_gateway_history() FROM PUBLIC;

-- +goose Down

SET LOCAL lock_timeout = '3s';

DROP FUNCTION email_gateway_history();
ALTER TABLE event_positions DROP COLUMN history;
