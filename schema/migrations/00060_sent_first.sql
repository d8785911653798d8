-- SENT may be the first event of an email.
--
-- After the promotion of a standby that has not received the claim of a first try, its worker may still record that the provider
-- accepted the email. Until now the CHECK refused that, and the email was sent again. Programs of the previous release write
-- the same events; the new CHECK accepts every pair that the old one does.

-- +goose NO TRANSACTION
-- +goose Up

-- The ALTERs need a short ACCESS EXCLUSIVE lock. Behind a backup they give up, and the file can be run again.
SET lock_timeout = '3s';

-- +goose StatementBegin
DO $$
BEGIN
    IF NOT EXISTS (SELECT FROM pg_constraint WHERE conrelid = 'email_events'::regclass AND conname = 'email_events_path_new') THEN
        ALTER TABLE email_events ADD CONSTRAINT email_events_path_new CHECK (
            CASE coalesce(previous, '')
                WHEN ''                  THEN type IN ('RECEIVED', 'RESCHEDULED', 'CANCELLED', 'EXPIRED', 'SUPPRESSED', 'SENT')
                WHEN 'RECEIVED'          THEN type IN ('VALIDATED', 'VALIDATION_FAILED', 'SUPPRESSED')
                WHEN 'VALIDATED'         THEN type IN ('SENT_ATTEMPT')
                WHEN 'VALIDATION_FAILED' THEN type IN ('FAILED')
                WHEN 'SENT_ATTEMPT'      THEN type IN ('SENT', 'FAILED', 'RETRY_SCHEDULED', 'OUTCOME_UNKNOWN', 'RELEASED')
                WHEN 'OUTCOME_UNKNOWN'   THEN type IN ('SENT', 'FAILED', 'RETRY_SCHEDULED')
                WHEN 'RESCHEDULED'       THEN type IN ('RECEIVED', 'RESCHEDULED', 'CANCELLED', 'EXPIRED', 'SUPPRESSED', 'SENT')
                WHEN 'RETRY_SCHEDULED'   THEN type IN ('RECEIVED', 'RESCHEDULED', 'CANCELLED', 'EXPIRED', 'SUPPRESSED', 'SENT')
                WHEN 'RELEASED'          THEN type IN ('RECEIVED', 'RESCHEDULED', 'CANCELLED', 'EXPIRED', 'SUPPRESSED', 'SENT')
                WHEN 'REPLAYED'          THEN type IN ('RECEIVED', 'RESCHEDULED', 'CANCELLED', 'EXPIRED', 'SUPPRESSED', 'SENT')
                WHEN 'FAILED'            THEN type IN ('REPLAYED', 'SENT')
                WHEN 'EXPIRED'           THEN type IN ('REPLAYED', 'SENT')
                WHEN 'CANCELLED'         THEN type IN ('REPLAYED', 'SENT')
                WHEN 'SUPPRESSED'        THEN type IN ('SENT')
                ELSE previous IN ('SENT', 'DELIVERED', 'DELIVERY_DELAYED', 'BOUNCED', 'COMPLAINED', 'REJECTED', 'RENDERING_FAILED',
                                  'OPENED', 'CLICKED', 'SUBSCRIPTION_CHANGED', 'DUPLICATE_CONFIRMED')
                    AND type IN ('DELIVERED', 'DELIVERY_DELAYED', 'BOUNCED', 'COMPLAINED', 'REJECTED', 'RENDERING_FAILED',
                                 'OPENED', 'CLICKED', 'SUBSCRIPTION_CHANGED', 'DUPLICATE_CONFIRMED')
            END) NOT VALID;
    END IF;
END
$$;
-- +goose StatementEnd
-- VALIDATE reads the table without stopping writes, and nothing if an earlier run has done so.
ALTER TABLE email_events VALIDATE CONSTRAINT email_events_path_new;
-- +goose StatementBegin
DO $$
BEGIN
    ALTER TABLE email_events DROP CONSTRAINT email_events_path;
    ALTER TABLE email_events RENAME CONSTRAINT email_events_path_new TO email_events_path;
END
$$;
-- +goose StatementEnd

RESET lock_timeout;

-- +goose Down

SET lock_timeout = '3s';

ALTER TABLE email_events DROP CONSTRAINT IF EXISTS email_events_path_new;
ALTER TABLE email_events ADD CONSTRAINT email_events_path_new CHECK (
    CASE coalesce(previous, '')
        WHEN ''                  THEN type IN ('RECEIVED', 'RESCHEDULED', 'CANCELLED', 'EXPIRED', 'SUPPRESSED')
        WHEN 'RECEIVED'          THEN type IN ('VALIDATED', 'VALIDATION_FAILED', 'SUPPRESSED')
        WHEN 'VALIDATED'         THEN type IN ('SENT_ATTEMPT')
        WHEN 'VALIDATION_FAILED' THEN type IN ('FAILED')
        WHEN 'SENT_ATTEMPT'      THEN type IN ('SENT', 'FAILED', 'RETRY_SCHEDULED', 'OUTCOME_UNKNOWN', 'RELEASED')
        WHEN 'OUTCOME_UNKNOWN'   THEN type IN ('SENT', 'FAILED', 'RETRY_SCHEDULED')
        WHEN 'RESCHEDULED'       THEN type IN ('RECEIVED', 'RESCHEDULED', 'CANCELLED', 'EXPIRED', 'SUPPRESSED', 'SENT')
        WHEN 'RETRY_SCHEDULED'   THEN type IN ('RECEIVED', 'RESCHEDULED', 'CANCELLED', 'EXPIRED', 'SUPPRESSED', 'SENT')
        WHEN 'RELEASED'          THEN type IN ('RECEIVED', 'RESCHEDULED', 'CANCELLED', 'EXPIRED', 'SUPPRESSED', 'SENT')
        WHEN 'REPLAYED'          THEN type IN ('RECEIVED', 'RESCHEDULED', 'CANCELLED', 'EXPIRED', 'SUPPRESSED', 'SENT')
        WHEN 'FAILED'            THEN type IN ('REPLAYED', 'SENT')
        WHEN 'EXPIRED'           THEN type IN ('REPLAYED', 'SENT')
        WHEN 'CANCELLED'         THEN type IN ('REPLAYED', 'SENT')
        WHEN 'SUPPRESSED'        THEN type IN ('SENT')
        ELSE previous IN ('SENT', 'DELIVERED', 'DELIVERY_DELAYED', 'BOUNCED', 'COMPLAINED', 'REJECTED', 'RENDERING_FAILED',
                          'OPENED', 'CLICKED', 'SUBSCRIPTION_CHANGED', 'DUPLICATE_CONFIRMED')
            AND type IN ('DELIVERED', 'DELIVERY_DELAYED', 'BOUNCED', 'COMPLAINED', 'REJECTED', 'RENDERING_FAILED',
                         'OPENED', 'CLICKED', 'SUBSCRIPTION_CHANGED', 'DUPLICATE_CONFIRMED')
    END) NOT VALID;
-- Timelines that begin with SENT stay: with one, the CHECK holds for new events only.
-- +goose StatementBegin
DO $$
BEGIN
    IF NOT EXISTS (SELECT FROM email_events WHERE previous IS NULL AND type = 'SENT') THEN
        ALTER TABLE email_events VALIDATE CONSTRAINT email_events_path_new;
    END IF;
END
$$;
-- +goose StatementEnd
-- +goose StatementBegin
DO $$
BEGIN
    ALTER TABLE email_events DROP CONSTRAINT email_events_path;
    ALTER TABLE email_events RENAME CONSTRAINT email_events_path_new TO email_events_path;
END
$$;
-- +goose StatementEnd

RESET lock_timeout;
