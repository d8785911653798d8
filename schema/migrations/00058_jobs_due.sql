-- When a job of RabbitMQ became due.
--
-- A dispatcher that takes a job moves next_at, so that no other takes it meanwhile. A job that RabbitMQ does not confirm is taken
-- again and again, and outbox_oldest_due_seconds did not show since when it waits.

-- +goose Up

SET LOCAL lock_timeout = '3s';

ALTER TABLE email_outbox ADD COLUMN due_at timestamptz; -- of a job: next_at before it was first taken

-- +goose Down

SET LOCAL lock_timeout = '3s';

ALTER TABLE email_outbox DROP COLUMN due_at;
