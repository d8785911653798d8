-- An automatic reply is no bounce of a delivered email.
--
-- SES reports the reply of somebody who is out of office as a bounce of the type Transient and the subtype General, after the
-- delivery. Such emails were shown as bounced, and counted so in mailings. They stay delivered now, in whatever order the two
-- notifications come, if the email has one recipient: with several, the bounce may be another one's, who did not get it.
--
-- The function replaces that of 00036_delivery_state.sql. It runs in the transaction of whichever release records the
-- notification. Emails whose notifications were recorded before stay bounced.

-- +goose Up

-- +goose StatementBegin
-- Records the delivery that an applied notification reports. The transaction has locked the
-- email's rows; they are found by primary key of email_logs, email_outbox and mailing_entries. A complaint of the
-- type not-spam is none: a recipient moved the email out of the junk folder. Nor is a bounce Transient/General a problem
-- of an email with one recipient that was delivered.
-- Generic plans: with the plan of each value, which is made for all partitions, feedback would take longer.
CREATE OR REPLACE FUNCTION email_gateway_record_delivery() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp SET standard_conforming_strings = on SET plan_cache_mode = force_generic_plan AS $$
DECLARE
    -- An automatic reply counts less than every other final problem.
    ranks CONSTANT text[] := '{delayed,reply,rejected,bounced,complained}';
    happened CONSTANT timestamptz := coalesce(NEW.occurred_at, NEW.received_at);
    problem CONSTANT text := CASE NEW.kind WHEN 'DeliveryDelay' THEN 'delayed' WHEN 'Reject' THEN 'rejected' WHEN 'Rendering Failure' THEN 'rejected'
                                           WHEN 'Bounce' THEN 'bounced' WHEN 'Complaint' THEN 'complained' END;
    reason text;
    log record;
    mailing uuid;
    before text;
    after text;
    reply boolean := coalesce(NEW.kind = 'Bounce' AND NEW.payload ->> 'bounceType' = 'Transient' AND NEW.payload ->> 'bounceSubType' = 'General', false);
    replied boolean; -- the problem in the log is an automatic reply
    rank integer;
    known integer; -- the rank of the problem in the log
BEGIN
    IF problem = 'complained' AND NEW.payload ->> 'complaintFeedbackType' = 'not-spam' THEN
        RETURN NULL;
    END IF;
    SELECT l.company_id, l.recipient, l.delivered_at, l.delivery_problem, l.delivery_problem_at, l.delivery_problem_reason INTO log
    FROM email_logs l WHERE l.outbox_id = NEW.outbox_id FOR UPDATE;
    IF NOT FOUND THEN
        RETURN NULL;
    END IF;
    replied := coalesce(log.delivery_problem = 'bounced' AND split_part(log.delivery_problem_reason, ':', 1) = 'Transient/General', false);
    IF (reply OR replied) AND NOT coalesce(
        (SELECT jsonb_array_length(coalesce(nullif(o.payload -> 'cc', 'null'), '[]') || coalesce(nullif(o.payload -> 'bcc', 'null'), '[]')) = 0
         FROM email_outbox o WHERE o.id = NEW.outbox_id),
        EXISTS (SELECT FROM mailing_entries e WHERE e.id = NEW.outbox_id)) THEN
        reply := false;
        replied := false;
    END IF;
    before := CASE WHEN log.delivery_problem <> 'delayed' THEN log.delivery_problem WHEN log.delivered_at IS NOT NULL THEN 'delivered' END;
    IF problem IS NULL THEN
        IF log.delivered_at <= happened THEN
            RETURN NULL;
        END IF;
        IF replied THEN
            UPDATE email_logs SET delivered_at = happened, delivery_problem = NULL, delivery_problem_at = NULL, delivery_problem_reason = NULL
            WHERE outbox_id = NEW.outbox_id AND company_id = log.company_id;
            after := 'delivered';
        ELSE
            UPDATE email_logs SET delivered_at = happened WHERE outbox_id = NEW.outbox_id AND company_id = log.company_id;
            after := coalesce(before, 'delivered');
        END IF;
    ELSE
        IF log.recipient <> 'erased@erased.invalid' THEN
            reason := left(nullif(concat_ws(': ',
                nullif(concat_ws('/', NEW.payload ->> 'bounceType', NEW.payload ->> 'bounceSubType', NEW.payload ->> 'complaintFeedbackType',
                                 NEW.payload ->> 'complaintSubType', NEW.payload ->> 'delayType', NEW.payload ->> 'reason', NEW.payload ->> 'errorMessage'), ''),
                (SELECT min(r.value ->> 'diagnosticCode') FROM jsonb_array_elements(
                    CASE jsonb_typeof(NEW.payload -> 'recipients') WHEN 'array' THEN NEW.payload -> 'recipients' ELSE '[]' END) r)), ''), 500);
        END IF;
        rank := array_position(ranks, CASE WHEN reply THEN 'reply' ELSE problem END);
        known := array_position(ranks, CASE WHEN replied THEN 'reply' ELSE log.delivery_problem END);
        IF reply AND log.delivered_at IS NOT NULL OR rank < known
           OR rank = known AND (happened, coalesce(reason, '')) >= (log.delivery_problem_at, coalesce(log.delivery_problem_reason, '')) THEN
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

-- +goose Down

-- +goose StatementBegin
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
