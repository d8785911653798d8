-- The reputation guard: it pauses the mailings of a company whose emails bounce or draw complaints too
-- often (shared/store/reputation).
--
-- A rate is that of the emails sent in a window: those of them that bounced, or drew a complaint, among
-- all of them. So a rate is never above 100 %, and feedback that is late, or about emails of last week,
-- changes no rate of the last hour.
--
-- Triggers count, so that notifications which a program of the previous release applies count too.
-- Feedback is one row per email and kind, in the transaction that applies the notification: it waits
-- for no lock. Sends are a number in the row that event_feed gets anyway. It is read only for companies
-- that have feedback.
--
-- Programs of the previous release do not know companies.mailings_paused_at: a worker of that release
-- goes on with paused mailings until it is replaced.

-- +goose Up

SET LOCAL lock_timeout = '3s';

ALTER TABLE companies ADD COLUMN mailings_paused_at timestamptz; -- by the reputation guard; NULL = they are sent
CREATE INDEX companies_paused ON companies (mailings_paused_at) WHERE mailings_paused_at IS NOT NULL;

-- How many of the events are SENT; NULL in rows of before this migration.
ALTER TABLE event_feed ADD COLUMN sent integer;

-- +goose StatementBegin
-- As in 00034_event_feed.sql, with the number of SENT events.
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

-- Events of a company that are about none of its emails. Each has a row in event_feed, whose only email
-- id is the event's, and whose numbers are 1.
CREATE TABLE company_events (
    id          uuid PRIMARY KEY,               -- UUIDv7
    company_id  uuid NOT NULL REFERENCES companies (id),
    type        text NOT NULL CHECK (type IN ('REPUTATION_WARNING', 'MAILINGS_PAUSED', 'MAILINGS_RESUMED')),
    metadata    jsonb NOT NULL DEFAULT '{}',
    created_at  timestamptz NOT NULL DEFAULT now()
);
CREATE INDEX company_events_age ON company_events (created_at);

-- +goose StatementBegin
CREATE FUNCTION email_gateway_feed_company_event() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp SET standard_conforming_strings = on AS $$
BEGIN
    INSERT INTO event_feed (company_id, email_ids, first_seqs, last_seqs, sent) VALUES (NEW.company_id, ARRAY[NEW.id], '{1}', '{1}', 0);
    RETURN NULL;
END
$$;
-- +goose StatementEnd
REVOKE ALL ON FUNCTION email_gateway_feed_company_event() FROM PUBLIC;
CREATE TRIGGER company_events_feed AFTER INSERT ON company_events FOR EACH ROW EXECUTE FUNCTION email_gateway_feed_company_event();

-- The rules of companies without rules of their own; dispatchers write their configuration here. Rates
-- are in parts per million.
CREATE TABLE reputation_defaults (
    rule        text PRIMARY KEY CHECK (rule IN ('complaints_1h', 'complaints_24h', 'bounces_1h', 'bounces_24h')),
    warn_ppm    integer NOT NULL CHECK (warn_ppm > 0),
    pause_ppm   integer NOT NULL CHECK (pause_ppm BETWEEN warn_ppm AND 1000000),
    min_sent    integer NOT NULL CHECK (min_sent > 0),
    min_events  integer NOT NULL CHECK (min_events > 0)
);
INSERT INTO reputation_defaults VALUES
    ('complaints_1h', 5000, 10000, 200, 5), ('complaints_24h', 1500, 3000, 1000, 10),
    ('bounces_1h', 50000, 100000, 200, 20), ('bounces_24h', 25000, 50000, 1000, 50);

CREATE TABLE company_reputation_rules (
    company_id  uuid NOT NULL REFERENCES companies (id),
    rule        text NOT NULL CHECK (rule IN ('complaints_1h', 'complaints_24h', 'bounces_1h', 'bounces_24h')),
    warn_ppm    integer NOT NULL CHECK (warn_ppm > 0),
    pause_ppm   integer NOT NULL CHECK (pause_ppm BETWEEN warn_ppm AND 1000000),
    min_sent    integer NOT NULL CHECK (min_sent > 0),
    min_events  integer NOT NULL CHECK (min_events > 0),
    PRIMARY KEY (company_id, rule)
);

-- One row: whether the guard is on for companies without a setting of their own, and since when sends
-- are counted: feedback about earlier emails does not count.
CREATE TABLE reputation_guard (
    singleton   boolean PRIMARY KEY DEFAULT true CHECK (singleton),
    enabled     boolean NOT NULL DEFAULT true,
    counts_from timestamptz NOT NULL DEFAULT now()
);
INSERT INTO reputation_guard DEFAULT VALUES;

-- A company that has had feedback, or settings of its own. The process that checks the company locks it.
CREATE TABLE company_reputation (
    company_id    uuid PRIMARY KEY REFERENCES companies (id),
    enabled       boolean,                              -- NULL = as in reputation_guard
    counts_from   timestamptz NOT NULL DEFAULT '-infinity', -- emails sent before do not count: the mailings were resumed
    feed_position bigint,                               -- sends up to this row of event_feed are in reputation_sends; NULL = none
    checked_at    timestamptz,
    check_at      timestamptz,                          -- when it is checked again without new feedback; NULL = it is not
    warnings      jsonb NOT NULL DEFAULT '{}',          -- by rule, when its last warning was
    pause         jsonb                                 -- why the mailings are paused
);
CREATE INDEX company_reputation_due ON company_reputation (check_at) WHERE check_at IS NOT NULL;
CREATE INDEX company_reputation_counted ON company_reputation (checked_at) WHERE feed_position IS NOT NULL;

-- How many emails of the company were sent in a minute, for 25 hours.
CREATE TABLE reputation_sends (
    company_id  uuid NOT NULL,
    minute      timestamptz NOT NULL,
    sent        integer NOT NULL,
    PRIMARY KEY (company_id, minute)
) WITH (fillfactor = 70);

-- One row for each email that bounced, and each that drew a complaint, for 25 hours after it was sent.
CREATE TABLE reputation_feedback (
    outbox_id   uuid NOT NULL,
    kind        text NOT NULL CHECK (kind IN ('bounce', 'complaint')),
    company_id  uuid NOT NULL,
    sent_at     timestamptz NOT NULL,                   -- of the email
    checked     boolean NOT NULL DEFAULT false,
    PRIMARY KEY (outbox_id, kind)
);
CREATE INDEX reputation_feedback_unchecked ON reputation_feedback (company_id) WHERE NOT checked;
CREATE INDEX reputation_feedback_company ON reputation_feedback (company_id, sent_at, kind);
CREATE INDEX reputation_feedback_age ON reputation_feedback (sent_at);

-- +goose StatementBegin
-- Adds the row of an applied notification, unless the email has one. The transaction has locked the
-- email's log, which is found by primary key. SES's own suppression list is no judgement of a receiver
-- about the email, and does not count in SES's rates either.
CREATE FUNCTION email_gateway_record_reputation() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp SET standard_conforming_strings = on SET plan_cache_mode = force_generic_plan AS $$
BEGIN
    IF NEW.kind = 'Bounce' AND (NEW.payload ->> 'bounceType' IS DISTINCT FROM 'Permanent' OR NEW.payload ->> 'bounceSubType' = 'OnAccountSuppressionList')
       OR NEW.kind = 'Complaint' AND (NEW.payload ->> 'complaintFeedbackType' = 'not-spam' OR NEW.payload ->> 'complaintSubType' = 'OnAccountSuppressionList') THEN
        RETURN NULL;
    END IF;
    INSERT INTO reputation_feedback (outbox_id, kind, company_id, sent_at)
    SELECT l.outbox_id, lower(NEW.kind), l.company_id, l.sent_at FROM email_logs l
    WHERE l.outbox_id = NEW.outbox_id AND l.sent_at > now() - interval '25 hours'
    ON CONFLICT (outbox_id, kind) DO NOTHING;
    RETURN NULL;
END
$$;
-- +goose StatementEnd
REVOKE ALL ON FUNCTION email_gateway_record_reputation() FROM PUBLIC;
CREATE TRIGGER ses_events_reputation AFTER UPDATE OF applied_at ON ses_events FOR EACH ROW
    WHEN (OLD.applied_at IS NULL AND NEW.applied_at IS NOT NULL AND NEW.kind IN ('Bounce', 'Complaint'))
    EXECUTE FUNCTION email_gateway_record_reputation();

-- +goose Down

SET LOCAL lock_timeout = '3s';

DROP TRIGGER ses_events_reputation ON ses_events;
DROP FUNCTION email_gateway_record_reputation();
DROP TABLE reputation_feedback, reputation_sends, company_reputation, reputation_guard, company_reputation_rules, reputation_defaults;
DELETE FROM event_feed f USING company_events e WHERE f.company_id = e.company_id AND f.email_ids = ARRAY[e.id];
DROP TABLE company_events;
DROP FUNCTION email_gateway_feed_company_event();
-- +goose StatementBegin
CREATE OR REPLACE FUNCTION email_gateway_feed_events() RETURNS trigger
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
ALTER TABLE event_feed DROP COLUMN sent;
DROP INDEX companies_paused;
ALTER TABLE companies DROP COLUMN mailings_paused_at;
