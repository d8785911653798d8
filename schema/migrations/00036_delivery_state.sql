-- What became of an email after SES accepted it: delivered, delayed, bounced, complained, rejected.
-- A trigger on ses_events, the inbox of SES's notifications, records it in email_logs, in the
-- transaction that applies a notification: programs of the previous release write the same rows
-- there, so their notifications count too, and sending an email costs nothing.
--
-- Notifications arrive in any order and more than once. What is stored does not depend on that:
-- the earliest delivery, and the worst problem (the earliest of equal ones). A problem is worse in
-- this order: delayed, rejected, bounced, complained.
--
-- delivered_at is in no index, so recording a delivery, which most emails get, is a HOT update of
-- the log. Only a problem adds index entries.

-- +goose NO TRANSACTION
-- +goose Up

-- Behind a backup the file gives up, and can be run again.
SET lock_timeout = '3s';

ALTER TABLE email_logs
    ADD COLUMN IF NOT EXISTS delivered_at timestamptz,            -- by SES's clock; NULL = not reported
    ADD COLUMN IF NOT EXISTS delivery_problem text,               -- NULL = none
    ADD COLUMN IF NOT EXISTS delivery_problem_at timestamptz,     -- by SES's clock
    ADD COLUMN IF NOT EXISTS delivery_problem_reason text;        -- addresses in it are masked
-- +goose StatementBegin
DO $$
BEGIN
    IF NOT EXISTS (SELECT FROM pg_constraint WHERE conrelid = 'email_logs'::regclass AND conname = 'email_logs_delivery_problem') THEN
        ALTER TABLE email_logs ADD CONSTRAINT email_logs_delivery_problem CHECK (
            CASE WHEN delivery_problem IS NULL THEN delivery_problem_at IS NULL AND delivery_problem_reason IS NULL
                 ELSE delivery_problem IN ('delayed', 'rejected', 'bounced', 'complained') AND delivery_problem_at IS NOT NULL END) NOT VALID;
    END IF;
END
$$;
-- +goose StatementEnd
-- Reads the logs, and nothing if an earlier run has done so.
ALTER TABLE email_logs VALIDATE CONSTRAINT email_logs_delivery_problem;

-- One partition at a time is locked against writes while it is read, as in 00015_log_tags.sql.
-- A partition that was made since an earlier run has an index of its own, and is left out.
CREATE INDEX IF NOT EXISTS email_logs_problem ON ONLY email_logs (company_id, delivery_problem, outbox_id) WHERE delivery_problem IS NOT NULL;
-- +goose StatementBegin
DO $$
DECLARE
    part text;
BEGIN
    FOR part IN
        SELECT i.inhrelid::regclass::text FROM pg_inherits i
        WHERE i.inhparent = 'email_logs'::regclass AND NOT EXISTS (
            SELECT FROM pg_inherits a JOIN pg_index x ON x.indexrelid = a.inhrelid WHERE a.inhparent = 'email_logs_problem'::regclass AND x.indrelid = i.inhrelid)
        ORDER BY 1
    LOOP
        EXECUTE format('CREATE INDEX IF NOT EXISTS %I ON %I (company_id, delivery_problem, outbox_id) WHERE delivery_problem IS NOT NULL', part || '_problem', part);
        EXECUTE format('ALTER INDEX email_logs_problem ATTACH PARTITION %I', part || '_problem');
        COMMIT;
    END LOOP;
END
$$;
-- +goose StatementEnd

-- Counts of a mailing's emails by delivery, and of the recipients who unsubscribed by its link.
ALTER TABLE mailings
    ADD COLUMN IF NOT EXISTS delivered integer NOT NULL DEFAULT 0,
    ADD COLUMN IF NOT EXISTS bounced integer NOT NULL DEFAULT 0,
    ADD COLUMN IF NOT EXISTS complained integer NOT NULL DEFAULT 0,
    ADD COLUMN IF NOT EXISTS unsubscribed integer NOT NULL DEFAULT 0;

-- Changes of these counts. The dispatcher adds them to the mailing: feedback never waits for the
-- lock of a mailing's row.
CREATE TABLE IF NOT EXISTS mailing_feedback (
    mailing_id   uuid NOT NULL,
    id           bigint GENERATED ALWAYS AS IDENTITY,
    delivered    integer NOT NULL DEFAULT 0,
    bounced      integer NOT NULL DEFAULT 0,
    complained   integer NOT NULL DEFAULT 0,
    unsubscribed integer NOT NULL DEFAULT 0,
    PRIMARY KEY (mailing_id, id)
);

-- +goose StatementBegin
-- Records the delivery that an applied notification reports. The transaction has locked the
-- email's rows; they are found by primary key of email_logs and mailing_entries. A complaint of the
-- type not-spam is none: a recipient moved the email out of the junk folder.
-- Generic plans: with the plan of each value, which is made for all partitions, feedback would take longer.
CREATE OR REPLACE FUNCTION email_gateway_record_delivery() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp SET standard_conforming_strings = on SET plan_cache_mode = force_generic_plan AS $$
DECLARE
    ranks CONSTANT text[] := '{delayed,rejected,bounced,complained}';
    happened CONSTANT timestamptz := coalesce(NEW.occurred_at, NEW.received_at);
    problem CONSTANT text := CASE NEW.kind WHEN 'DeliveryDelay' THEN 'delayed' WHEN 'Reject' THEN 'rejected' WHEN 'Rendering Failure' THEN 'rejected'
                                           WHEN 'Bounce' THEN 'bounced' WHEN 'Complaint' THEN 'complained' END;
    reason text;
    log record;
    mailing uuid;
    before text;
    after text;
BEGIN
    IF problem = 'complained' AND NEW.payload ->> 'complaintFeedbackType' = 'not-spam' THEN
        RETURN NULL;
    END IF;
    SELECT l.company_id, l.recipient, l.delivered_at, l.delivery_problem, l.delivery_problem_at, l.delivery_problem_reason INTO log
    FROM email_logs l WHERE l.outbox_id = NEW.outbox_id FOR UPDATE;
    IF NOT FOUND THEN
        RETURN NULL;
    END IF;
    before := CASE WHEN log.delivery_problem <> 'delayed' THEN log.delivery_problem WHEN log.delivered_at IS NOT NULL THEN 'delivered' END;
    IF problem IS NULL THEN
        IF log.delivered_at <= happened THEN
            RETURN NULL;
        END IF;
        UPDATE email_logs SET delivered_at = happened WHERE outbox_id = NEW.outbox_id AND company_id = log.company_id;
        after := coalesce(before, 'delivered');
    ELSE
        IF log.recipient <> 'erased@erased.invalid' THEN
            reason := left(nullif(concat_ws(': ',
                nullif(concat_ws('/', NEW.payload ->> 'bounceType', NEW.payload ->> 'bounceSubType', NEW.payload ->> 'complaintFeedbackType',
                                 NEW.payload ->> 'complaintSubType', NEW.payload ->> 'delayType', NEW.payload ->> 'reason', NEW.payload ->> 'errorMessage'), ''),
                (SELECT min(r.value ->> 'diagnosticCode') FROM jsonb_array_elements(
                    CASE jsonb_typeof(NEW.payload -> 'recipients') WHEN 'array' THEN NEW.payload -> 'recipients' ELSE '[]' END) r)), ''), 500);
        END IF;
        IF array_position(ranks, problem) < array_position(ranks, log.delivery_problem) OR problem = log.delivery_problem
           AND (happened, coalesce(reason, '')) >= (log.delivery_problem_at, coalesce(log.delivery_problem_reason, '')) THEN
            RETURN NULL;
        END IF;
        UPDATE email_logs SET delivery_problem = problem, delivery_problem_at = happened, delivery_problem_reason = reason
        WHERE outbox_id = NEW.outbox_id AND company_id = log.company_id;
        after := CASE WHEN problem = 'delayed' THEN before ELSE problem END;
    END IF;
    IF after IS DISTINCT FROM before THEN
        SELECT e.mailing_id INTO mailing FROM mailing_entries e WHERE e.id = NEW.outbox_id;
        IF FOUND THEN
            INSERT INTO mailing_feedback (mailing_id, delivered, bounced, complained)
            SELECT mailing, (after = 'delivered')::integer - (was = 'delivered')::integer, (after = 'bounced')::integer - (was = 'bounced')::integer,
                   (after = 'complained')::integer - (was = 'complained')::integer
            FROM (SELECT coalesce(before, '') AS was) b;
        END IF;
    END IF;
    RETURN NULL;
END
$$;
-- +goose StatementEnd
REVOKE ALL ON FUNCTION email_gateway_record_delivery() FROM PUBLIC;

-- +goose StatementBegin
-- Counts a recipient who unsubscribes by a mailing's link, once for each address.
CREATE OR REPLACE FUNCTION email_gateway_count_unsubscribe() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp SET standard_conforming_strings = on AS $$
BEGIN
    INSERT INTO mailing_feedback (mailing_id, unsubscribed) VALUES (NEW.mailing_id, 1);
    RETURN NULL;
END
$$;
-- +goose StatementEnd
REVOKE ALL ON FUNCTION email_gateway_count_unsubscribe() FROM PUBLIC;

CREATE OR REPLACE TRIGGER ses_events_delivery AFTER UPDATE OF applied_at ON ses_events FOR EACH ROW
    WHEN (OLD.applied_at IS NULL AND NEW.applied_at IS NOT NULL
          AND NEW.kind IN ('Delivery', 'DeliveryDelay', 'Bounce', 'Complaint', 'Reject', 'Rendering Failure'))
    EXECUTE FUNCTION email_gateway_record_delivery();
CREATE OR REPLACE TRIGGER suppressions_unsubscribed AFTER INSERT ON suppressions FOR EACH ROW
    WHEN (NEW.reason = 'UNSUBSCRIBE' AND NEW.mailing_id IS NOT NULL) EXECUTE FUNCTION email_gateway_count_unsubscribe();

-- Suppressions in the order of their creation. An attempt that broke off leaves an invalid index.
SET lock_timeout = 0;
DROP INDEX CONCURRENTLY IF EXISTS suppressions_created;
CREATE INDEX CONCURRENTLY suppressions_created ON suppressions (company_id, created_at, address, reason);

RESET lock_timeout;

-- +goose Down

DROP INDEX suppressions_created;
DROP TRIGGER suppressions_unsubscribed ON suppressions;
DROP TRIGGER ses_events_delivery ON ses_events;
DROP FUNCTION email_gateway_count_unsubscribe();
DROP FUNCTION email_gateway_record_delivery();
DROP TABLE mailing_feedback;
ALTER TABLE mailings DROP COLUMN delivered, DROP COLUMN bounced, DROP COLUMN complained, DROP COLUMN unsubscribed;
DROP INDEX email_logs_problem;
ALTER TABLE email_logs DROP CONSTRAINT email_logs_delivery_problem;
ALTER TABLE email_logs DROP COLUMN delivered_at, DROP COLUMN delivery_problem, DROP COLUMN delivery_problem_at, DROP COLUMN delivery_problem_reason;
