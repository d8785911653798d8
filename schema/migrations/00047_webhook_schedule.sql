-- The attempts of a webhook delivery that its schedule does not count.
--
-- Programs of the previous release do not use the column, and count every attempt.

-- +goose Up

SET LOCAL lock_timeout = '3s';

ALTER TABLE webhook_deliveries ADD COLUMN scheduled_at timestamptz; -- the next attempt by the schedule, or next_at if that is later or this is NULL: a failed attempt before it does not count

-- +goose Down

SET LOCAL lock_timeout = '3s';

ALTER TABLE webhook_deliveries DROP COLUMN scheduled_at;
