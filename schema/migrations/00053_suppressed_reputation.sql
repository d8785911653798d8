-- Bounces and complaints of emails that SES did not try to deliver do not count in the reputation guard.
--
-- The function of 00040_reputation.sql left out SES's account-level suppression list only. SES reports two more reasons for which
-- it accepts an email and then does not send it: the suppression list of one of SES's tenants, and its address validation, which
-- predicts a bounce. None of them counts in SES's rates. The global list (Permanent/Suppressed) does.
--
-- The function runs in the transaction of whichever release applies the notification. What was recorded before stays.

-- +goose Up

-- +goose StatementBegin
-- Adds the row of an applied notification, unless the email has one. The transaction has locked the
-- email's log, which is found by primary key.
CREATE OR REPLACE FUNCTION email_gateway_record_reputation() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp SET standard_conforming_strings = on SET plan_cache_mode = force_generic_plan AS $$
DECLARE
    -- The subtypes of bounces and complaints without an attempt to deliver: no receiver judged the email.
    unattempted CONSTANT text[] := '{OnAccountSuppressionList,OnTenantSuppressionList,EmailValidationSuppressed}';
BEGIN
    IF NEW.kind = 'Bounce' AND NEW.payload ->> 'bounceType' IS DISTINCT FROM 'Permanent'
       OR NEW.kind = 'Complaint' AND NEW.payload ->> 'complaintFeedbackType' = 'not-spam'
       OR coalesce(NEW.payload ->> 'bounceSubType', NEW.payload ->> 'complaintSubType') = ANY (unattempted) THEN
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

-- +goose Down

-- +goose StatementBegin
CREATE OR REPLACE FUNCTION email_gateway_record_reputation() RETURNS trigger
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
