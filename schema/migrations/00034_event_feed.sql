-- The feed of a company's events: GET /v1/events and webhooks read it. A row names the emails
-- whose events one statement inserted, in the order of the feed.
--
-- A trigger on email_events adds the row in the transaction that inserts the events, so every
-- writer is covered: the gateway's programs, those of the previous release, and the functions for
-- programs that share the database. One row per statement and company is a fraction of the cost
-- of one per event.
--
-- The row has no position yet. Positions are assigned after the commit, by one process at a time
-- (shared/store/event): ids are assigned before the commit, so a reader that follows ids would
-- miss a row that commits late, and one that waits for older transactions would wait for the
-- oldest of them all.

-- +goose Up

SET LOCAL lock_timeout = '3s'; -- a backup may use email_events for hours

CREATE TABLE event_feed (
    id          bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    company_id  uuid NOT NULL,
    position    bigint CHECK (position > 0), -- NULL until it is assigned
    xid         xid8 NOT NULL DEFAULT pg_current_xact_id(),
    email_ids   uuid[] NOT NULL,             -- of email_events, with the first and last seq that was
    first_seqs  integer[] NOT NULL,          -- inserted for each
    last_seqs   integer[] NOT NULL,
    created_at  timestamptz NOT NULL DEFAULT now(),
    CONSTRAINT event_feed_arrays CHECK (cardinality(email_ids) > 0 AND cardinality(email_ids) = cardinality(first_seqs) AND cardinality(email_ids) = cardinality(last_seqs))
);
-- Rows without a position, of transactions from the last completed round on.
CREATE INDEX event_feed_waiting ON event_feed (xid) WHERE position IS NULL;
CREATE UNIQUE INDEX event_feed_position ON event_feed (company_id, position) WHERE position IS NOT NULL;
-- Each row is updated once, when it gets its position, and deleted after 30 days.
ALTER TABLE event_feed SET (fillfactor = 60, autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_cost_delay = 0);

-- One row: the newest position, the highest that was deleted, and the oldest transaction whose
-- rows may still be without a position. The process that assigns positions locks it.
CREATE TABLE event_positions (
    singleton   boolean PRIMARY KEY DEFAULT true CHECK (singleton),
    newest      bigint NOT NULL DEFAULT 0,
    deleted     bigint NOT NULL DEFAULT 0 CHECK (deleted BETWEEN 0 AND newest),
    from_xid    xid8 NOT NULL DEFAULT '0',
    updated_at  timestamptz NOT NULL DEFAULT now()
) WITH (fillfactor = 10);
INSERT INTO event_positions DEFAULT VALUES;

-- +goose StatementBegin
-- Adds a row to the feed for each company whose events were inserted. The companies are looked up
-- one by one in email_logs, which the same statement has written: a join would be planned for the
-- size of the tables at the time of a session's first statement. The primary key alone has the order,
-- so no other index is taken for it, and enable_seqscan is off for sessions that do not set it.
CREATE FUNCTION email_gateway_feed_events() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp SET standard_conforming_strings = on SET enable_seqscan = off AS $$
BEGIN
    INSERT INTO event_feed (company_id, email_ids, first_seqs, last_seqs)
    SELECT company_id, array_agg(email_log_id), array_agg(first), array_agg(last)
    FROM (
        SELECT email_log_id, first, last,
            (SELECT l.company_id FROM email_logs l WHERE l.outbox_id BETWEEN email_log_id AND email_log_id ORDER BY l.outbox_id LIMIT 1) AS company_id
        FROM (SELECT email_log_id, min(seq) AS first, max(seq) AS last FROM added GROUP BY email_log_id) one
    ) of_company
    WHERE company_id IS NOT NULL GROUP BY company_id;
    RETURN NULL;
END
$$;
-- +goose StatementEnd
REVOKE ALL ON FUNCTION email_gateway_feed_events() FROM PUBLIC;
CREATE TRIGGER email_events_feed AFTER INSERT ON email_events
    REFERENCING NEW TABLE AS added FOR EACH STATEMENT EXECUTE FUNCTION email_gateway_feed_events();

-- +goose Down

DROP TRIGGER email_events_feed ON email_events;
DROP FUNCTION email_gateway_feed_events();
DROP TABLE event_positions, event_feed;
