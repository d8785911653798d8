-- Two notes that a program writes while another transaction has locked the row that they are
-- about, so that it need not wait for that row. Neither has a foreign key, which would lock it.
--
-- Programs of the release before run beside this. A task that one of their workers drops is
-- counted as lost, as before. A mailing that one of them marks has no counted_at, and is counted.

-- +goose Up

-- Tasks that a worker acknowledged without having done anything, because the email's row was
-- locked. The row still says that it has a task; the rescuer returns it to the dispatcher and
-- does not count the task as lost.
CREATE TABLE dropped_tasks (
    enqueued_at timestamptz NOT NULL, -- of the row: a later task of the same email has another one
    outbox_id   uuid NOT NULL,
    PRIMARY KEY (enqueued_at, outbox_id)
);

-- Paused mailings of which an email has ended since they were counted.
CREATE TABLE mailing_marks (
    mailing_id uuid NOT NULL,
    id         bigint GENERATED ALWAYS AS IDENTITY, -- a count deletes the marks that it has seen
    PRIMARY KEY (mailing_id, id)
);

-- +goose Down

-- A program of the release before counts a marked mailing only if it has no counted_at.
UPDATE mailings SET counted_at = NULL WHERE id IN (SELECT mailing_id FROM mailing_marks);
DROP TABLE mailing_marks;
DROP TABLE dropped_tasks;
