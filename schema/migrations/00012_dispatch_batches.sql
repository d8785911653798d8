-- The batches of emails that dispatchers have taken and not yet confirmed as published. A
-- dispatcher commits the status ENQUEUED before it publishes, so a crash in between leaves
-- emails without a task. The row of their batch then tells the rescuer that the tasks were
-- never published, and not lost by Redis. Programs of the release before publish inside the
-- transaction and need no row here.

-- +goose Up

CREATE TABLE dispatch_batches (
    slot      uuid NOT NULL,        -- one of a dispatcher's concurrent batches; a restart makes new ones
    taken_at  timestamptz NOT NULL, -- enqueued_at of the batch's emails
    PRIMARY KEY (taken_at, slot)
);

-- +goose Down

DROP TABLE dispatch_batches;
