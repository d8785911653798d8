-- What a company has used, by UTC day: GET /v1/usage reads it. An event counts on the day on which
-- the transaction that recorded it began, so the days before today do not change afterwards.
--
-- Sending an email costs almost nothing more, because two tables that every email writes already
-- serve as the list of changes, each of which is folded into usage_days once:
--
-- quota_deltas has the emails and bytes that a statement has accepted. Whatever deletes its rows
-- (the quota folder of this or the previous release) adds them to usage_days by a trigger.
--
-- event_feed has the events that a statement has inserted. Its trigger counts those of the type
-- SENT, which an email has once (00040_reputation.sql), and now those that SES reports. The usage folder of the dispatcher
-- follows the positions of the feed with a cursor per company.

-- +goose Up

SET LOCAL lock_timeout = '3s'; -- a backup may use event_feed for hours

-- A company's day. Rows are kept permanently and hold no personal data.
CREATE TABLE usage_days (
    company_id  uuid NOT NULL,
    day         date NOT NULL, -- UTC
    accepted    bigint NOT NULL DEFAULT 0, -- emails, those made from mailings included
    sent        bigint NOT NULL DEFAULT 0,
    delivered   bigint NOT NULL DEFAULT 0, -- emails whose first event of the type is of this day,
    bounced     bigint NOT NULL DEFAULT 0, -- as are the next two
    complained  bigint NOT NULL DEFAULT 0,
    body_bytes  bigint NOT NULL DEFAULT 0, -- html and text of emails, and templates of mailings
    PRIMARY KEY (company_id, day)
);
-- The row of today is updated every 2 s while emails are accepted.
ALTER TABLE usage_days SET (fillfactor = 50);

CREATE TABLE usage_companies (
    company_id    uuid PRIMARY KEY,
    position      bigint NOT NULL DEFAULT 0,          -- of event_feed: all rows up to it are counted
    counted_from  timestamptz NOT NULL DEFAULT now()  -- nothing before is counted
);
ALTER TABLE usage_companies SET (fillfactor = 50);
INSERT INTO usage_companies (company_id, position) SELECT c.id, p.newest FROM companies c CROSS JOIN event_positions p;

ALTER TABLE event_feed ADD COLUMN reported integer; -- events of the types DELIVERED, BOUNCED and COMPLAINED; NULL = none

-- +goose StatementBegin
-- Adds a row to the feed for each company whose events were inserted. The companies are looked up
-- one by one in email_logs, which the same statement has written: a join would be planned for the
-- size of the tables at the time of a session's first statement. The primary key alone has the order,
-- so no other index is taken for it, and enable_seqscan is off for sessions that do not set it.
CREATE OR REPLACE FUNCTION email_gateway_feed_events() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp SET standard_conforming_strings = on SET enable_seqscan = off AS $$
BEGIN
    INSERT INTO event_feed (company_id, email_ids, first_seqs, last_seqs, sent, reported)
    SELECT company_id, array_agg(email_log_id), array_agg(first), array_agg(last), sum(sent), nullif(sum(reported), 0)
    FROM (
        SELECT email_log_id, first, last, sent, reported,
            (SELECT l.company_id FROM email_logs l WHERE l.outbox_id BETWEEN email_log_id AND email_log_id ORDER BY l.outbox_id LIMIT 1) AS company_id
        FROM (
            SELECT email_log_id, min(seq) AS first, max(seq) AS last, count(*) FILTER (WHERE type = 'SENT') AS sent,
                   count(*) FILTER (WHERE type IN ('DELIVERED', 'BOUNCED', 'COMPLAINED')) AS reported
            FROM added GROUP BY email_log_id
        ) one
    ) of_company
    WHERE company_id IS NOT NULL GROUP BY company_id;
    RETURN NULL;
END
$$;
-- +goose StatementEnd

-- +goose StatementBegin
-- Adds accepted emails and bytes to the days of their companies when their rows are folded into
-- quota_totals. Rows are written in the order of the primary key, as the usage folder does. Bytes
-- that are deleted are negative and not counted.
CREATE FUNCTION email_gateway_count_usage() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp SET standard_conforming_strings = on AS $$
BEGIN
    INSERT INTO usage_days AS u (company_id, day, accepted, body_bytes)
    SELECT company_id, day, sum(emails), sum(greatest(body_bytes, 0)) FROM folded
    WHERE emails > 0 OR body_bytes > 0 GROUP BY company_id, day ORDER BY company_id, day
    ON CONFLICT (company_id, day) DO UPDATE SET accepted = u.accepted + excluded.accepted, body_bytes = u.body_bytes + excluded.body_bytes;
    RETURN NULL;
END
$$;
-- +goose StatementEnd
REVOKE ALL ON FUNCTION email_gateway_count_usage() FROM PUBLIC;
CREATE TRIGGER quota_deltas_usage AFTER DELETE ON quota_deltas
    REFERENCING OLD TABLE AS folded FOR EACH STATEMENT EXECUTE FUNCTION email_gateway_count_usage();

-- +goose Down

DROP TRIGGER quota_deltas_usage ON quota_deltas;
DROP FUNCTION email_gateway_count_usage();
-- +goose StatementBegin
CREATE OR REPLACE FUNCTION email_gateway_feed_events() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp SET standard_conforming_strings = on SET enable_seqscan = off AS $$
BEGIN
    INSERT INTO event_feed (company_id, email_ids, first_seqs, last_seqs, sent)
    SELECT company_id, array_agg(email_log_id), array_agg(first), array_agg(last), sum(sent)
    FROM (
        SELECT email_log_id, first, last, sent,
            (SELECT l.company_id FROM email_logs l WHERE l.outbox_id BETWEEN email_log_id AND email_log_id ORDER BY l.outbox_id LIMIT 1) AS company_id
        FROM (SELECT email_log_id, min(seq) AS first, max(seq) AS last, count(*) FILTER (WHERE type = 'SENT') AS sent
              FROM added GROUP BY email_log_id) one
    ) of_company
    WHERE company_id IS NOT NULL GROUP BY company_id;
    RETURN NULL;
END
$$;
-- +goose StatementEnd
ALTER TABLE event_feed DROP COLUMN reported;
DROP TABLE usage_companies, usage_days;
