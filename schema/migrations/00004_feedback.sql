-- What SES tells after it accepted an email: an inbox for its notifications, and their
-- names in the timeline. The new CHECK is proved beside the old one, without stopping
-- writes; the old one goes when the new one holds.

-- +goose NO TRANSACTION
-- +goose Up

-- One row per notification, written in the commit of what it changed: SNS delivers at
-- least once, and a row that is there has done its work. Addresses stand in it masked.
CREATE TABLE IF NOT EXISTS ses_events (
    sns_message_id  text PRIMARY KEY CHECK (length(sns_message_id) BETWEEN 1 AND 100), -- the same each time it is delivered
    kind            text NOT NULL CHECK (length(kind) BETWEEN 1 AND 100),              -- in SES's words; it may invent new ones
    ses_message_id  text,
    outbox_id       uuid,                               -- the tags of the email; NULL = it had none
    attempt_id      uuid,
    payload         jsonb NOT NULL DEFAULT '{}',
    occurred_at     timestamptz,                        -- by SES's clock
    received_at     timestamptz NOT NULL DEFAULT now(),
    applied_at      timestamptz                         -- NULL = no attempt of ours
);
CREATE INDEX IF NOT EXISTS ses_events_age ON ses_events (received_at);

ALTER TABLE email_events DROP CONSTRAINT IF EXISTS email_events_path_new;
ALTER TABLE email_events ADD CONSTRAINT email_events_path_new CHECK (
    CASE coalesce(previous, '')
        WHEN ''                  THEN type IN ('RECEIVED', 'CANCELLED', 'EXPIRED', 'SUPPRESSED')
        WHEN 'RECEIVED'          THEN type IN ('VALIDATED', 'VALIDATION_FAILED', 'SUPPRESSED')
        WHEN 'VALIDATED'         THEN type IN ('SENT_ATTEMPT')
        WHEN 'VALIDATION_FAILED' THEN type IN ('FAILED')
        WHEN 'SENT_ATTEMPT'      THEN type IN ('SENT', 'FAILED', 'RETRY_SCHEDULED', 'OUTCOME_UNKNOWN', 'RELEASED')
        WHEN 'OUTCOME_UNKNOWN'   THEN type IN ('SENT', 'FAILED', 'RETRY_SCHEDULED')
        WHEN 'RETRY_SCHEDULED'   THEN type IN ('RECEIVED', 'CANCELLED', 'EXPIRED', 'SUPPRESSED', 'SENT')
        WHEN 'RELEASED'          THEN type IN ('RECEIVED', 'CANCELLED', 'EXPIRED', 'SUPPRESSED', 'SENT')
        WHEN 'REPLAYED'          THEN type IN ('RECEIVED', 'CANCELLED', 'EXPIRED', 'SUPPRESSED', 'SENT')
        WHEN 'FAILED'            THEN type IN ('REPLAYED', 'SENT')
        WHEN 'EXPIRED'           THEN type IN ('REPLAYED', 'SENT')
        WHEN 'CANCELLED'         THEN type IN ('REPLAYED', 'SENT')
        WHEN 'SUPPRESSED'        THEN type IN ('SENT')
        -- From here on the provider speaks, in any order and as often as it likes.
        ELSE previous IN ('SENT', 'DELIVERED', 'DELIVERY_DELAYED', 'BOUNCED', 'COMPLAINED', 'REJECTED', 'RENDERING_FAILED',
                          'OPENED', 'CLICKED', 'SUBSCRIPTION_CHANGED', 'DUPLICATE_CONFIRMED')
            AND type IN ('DELIVERED', 'DELIVERY_DELAYED', 'BOUNCED', 'COMPLAINED', 'REJECTED', 'RENDERING_FAILED',
                         'OPENED', 'CLICKED', 'SUBSCRIPTION_CHANGED', 'DUPLICATE_CONFIRMED')
    END) NOT VALID;
ALTER TABLE email_events VALIDATE CONSTRAINT email_events_path_new;
-- +goose StatementBegin
DO $$
BEGIN
    ALTER TABLE email_events DROP CONSTRAINT email_events_path;
    ALTER TABLE email_events RENAME CONSTRAINT email_events_path_new TO email_events_path;
END
$$;
-- +goose StatementEnd

-- +goose Down

-- What the provider told stands behind everything else, so the rest stays a path.
DELETE FROM email_events
WHERE type IN ('DELIVERED', 'DELIVERY_DELAYED', 'BOUNCED', 'COMPLAINED', 'REJECTED', 'RENDERING_FAILED',
               'OPENED', 'CLICKED', 'SUBSCRIPTION_CHANGED', 'DUPLICATE_CONFIRMED');
UPDATE email_logs l SET last_event = 'SENT', event_seq = (SELECT max(seq) FROM email_events WHERE email_log_id = l.outbox_id)
WHERE last_event IN ('DELIVERED', 'DELIVERY_DELAYED', 'BOUNCED', 'COMPLAINED', 'REJECTED', 'RENDERING_FAILED',
                     'OPENED', 'CLICKED', 'SUBSCRIPTION_CHANGED', 'DUPLICATE_CONFIRMED');
-- +goose StatementBegin
DO $$
BEGIN
    ALTER TABLE email_events DROP CONSTRAINT email_events_path;
    ALTER TABLE email_events ADD CONSTRAINT email_events_path CHECK (
        CASE coalesce(previous, '')
            WHEN ''                  THEN type IN ('RECEIVED', 'CANCELLED', 'EXPIRED', 'SUPPRESSED')
            WHEN 'RECEIVED'          THEN type IN ('VALIDATED', 'VALIDATION_FAILED', 'SUPPRESSED')
            WHEN 'VALIDATED'         THEN type IN ('SENT_ATTEMPT')
            WHEN 'VALIDATION_FAILED' THEN type IN ('FAILED')
            WHEN 'SENT_ATTEMPT'      THEN type IN ('SENT', 'FAILED', 'RETRY_SCHEDULED', 'OUTCOME_UNKNOWN', 'RELEASED')
            WHEN 'OUTCOME_UNKNOWN'   THEN type IN ('SENT', 'FAILED', 'RETRY_SCHEDULED')
            WHEN 'RETRY_SCHEDULED'   THEN type IN ('RECEIVED', 'CANCELLED', 'EXPIRED', 'SUPPRESSED', 'SENT')
            WHEN 'RELEASED'          THEN type IN ('RECEIVED', 'CANCELLED', 'EXPIRED', 'SUPPRESSED', 'SENT')
            WHEN 'REPLAYED'          THEN type IN ('RECEIVED', 'CANCELLED', 'EXPIRED', 'SUPPRESSED', 'SENT')
            WHEN 'FAILED'            THEN type IN ('REPLAYED', 'SENT')
            WHEN 'EXPIRED'           THEN type IN ('REPLAYED', 'SENT')
            WHEN 'CANCELLED'         THEN type IN ('REPLAYED', 'SENT')
            WHEN 'SUPPRESSED'        THEN type IN ('SENT')
            ELSE false
        END);
END
$$;
-- +goose StatementEnd
DROP TABLE ses_events;
