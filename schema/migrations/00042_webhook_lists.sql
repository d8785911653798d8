-- The list of an endpoint's deliveries by status, and the event of an endpoint that is disabled.

-- +goose Up

SET LOCAL lock_timeout = '3s';

-- An endpoint that fails now and then has many deliveries that were repeated, and few that failed.
CREATE INDEX webhook_deliveries_status ON webhook_deliveries (endpoint_id, status, id);

-- An endpoint was disabled: it failed for too long, responded with 410, or an operator disabled it.
ALTER TABLE company_events DROP CONSTRAINT company_events_type_check,
    ADD CONSTRAINT company_events_type_check CHECK (type IN ('REPUTATION_WARNING', 'MAILINGS_PAUSED', 'MAILINGS_RESUMED', 'WEBHOOK_DISABLED'));

-- +goose Down

SET LOCAL lock_timeout = '3s';

DELETE FROM event_feed f USING company_events e WHERE e.type = 'WEBHOOK_DISABLED' AND f.company_id = e.company_id AND f.email_ids = ARRAY[e.id];
DELETE FROM company_events WHERE type = 'WEBHOOK_DISABLED';
ALTER TABLE company_events DROP CONSTRAINT company_events_type_check,
    ADD CONSTRAINT company_events_type_check CHECK (type IN ('REPUTATION_WARNING', 'MAILINGS_PAUSED', 'MAILINGS_RESUMED'));
DROP INDEX webhook_deliveries_status;
