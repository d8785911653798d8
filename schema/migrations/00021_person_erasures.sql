-- An erasure of a person that has not come to its end is remembered with what the person
-- is known by: the rows that told it may be erased already when it is interrupted. And the
-- dispatcher is told which tasks to remove from Redis, which gatewayctl never opens.

-- +goose NO TRANSACTION
-- +goose Up

CREATE TABLE IF NOT EXISTS person_erasures (
    id          uuid PRIMARY KEY,               -- UUIDv7; the audit names it
    company_id  uuid NOT NULL REFERENCES companies,
    person      jsonb NOT NULL,                 -- addresses, hashes and ids, until the erasure is complete
    begun_at    timestamptz NOT NULL DEFAULT now()
);

CREATE TABLE IF NOT EXISTS erased_tasks (
    outbox_id   uuid PRIMARY KEY,               -- the task's id
    erasure_id  uuid NOT NULL,
    company_id  uuid NOT NULL,
    final       boolean NOT NULL,               -- the email can never be sent again, so its task is removed in whatever state it is
    asked_at    timestamptz NOT NULL DEFAULT now(),
    done_at     timestamptz,                    -- NULL = a dispatcher has yet to look
    found       boolean NOT NULL DEFAULT false, -- Redis had the task
    CONSTRAINT erased_tasks_found_is_done CHECK (NOT found OR done_at IS NOT NULL)
);
CREATE INDEX IF NOT EXISTS erased_tasks_open ON erased_tasks (outbox_id) WHERE done_at IS NULL;
CREATE INDEX IF NOT EXISTS erased_tasks_erasure ON erased_tasks (erasure_id);

-- The notifications about an email are found by its id. What an attempt that was interrupted
-- has left is of no use.
DROP INDEX CONCURRENTLY IF EXISTS ses_events_outbox;
CREATE INDEX CONCURRENTLY ses_events_outbox ON ses_events (outbox_id) WHERE outbox_id IS NOT NULL;

-- +goose Down

DROP INDEX CONCURRENTLY IF EXISTS ses_events_outbox;
DROP TABLE IF EXISTS erased_tasks, person_erasures;
