-- Dead letters can be listed, sent again and discarded, one by one and many at a time.

-- +goose NO TRANSACTION
-- +goose Up

ALTER TABLE dead_letters
    ADD COLUMN IF NOT EXISTS resolution text,      -- NULL = open, or resolved before there was this column
    ADD COLUMN IF NOT EXISTS resolved_by text,     -- 'api:<key id>', 'gatewayctl:<login>', 'mailing:<id>'; NULL = nobody asked
    ADD COLUMN IF NOT EXISTS resolution_note text, -- why, in a person's words
    ADD COLUMN IF NOT EXISTS replay_id uuid;       -- the row of dead_letter_replays that did it

ALTER TABLE dead_letters DROP CONSTRAINT IF EXISTS dead_letters_resolution;
ALTER TABLE dead_letters ADD CONSTRAINT dead_letters_resolution CHECK (
    resolution IS NULL OR resolution IN ('retried', 'discarded', 'sent') AND resolved_at IS NOT NULL) NOT VALID;
ALTER TABLE dead_letters VALIDATE CONSTRAINT dead_letters_resolution;

-- What an attempt that was broken off has left is of no use.
DROP INDEX CONCURRENTLY IF EXISTS dead_letters_company;
CREATE INDEX CONCURRENTLY dead_letters_company ON dead_letters (company_id, created_at, id);

-- One row per request to send again, or to discard, all dead letters that a filter
-- matches. A loop works it off, the oldest first, and moves the cursor.
CREATE TABLE IF NOT EXISTS dead_letter_replays (
    id            uuid PRIMARY KEY,              -- UUIDv7
    company_id    uuid,                          -- NULL = an operator's, of every company
    action        text NOT NULL CHECK (action IN ('retry', 'discard')),
    filter        jsonb NOT NULL,
    requested_by  text NOT NULL,
    request_id    text NOT NULL DEFAULT '',
    note          text,
    most          integer CHECK (most > 0),      -- dead letters; NULL = all that match
    rate          integer NOT NULL CHECK (rate BETWEEN 1 AND 1000), -- dead letters per second
    status        text NOT NULL DEFAULT 'RUNNING' CHECK (status IN ('RUNNING', 'COMPLETED')),
    matched       integer NOT NULL,              -- when it was asked for
    done          integer NOT NULL DEFAULT 0,
    skipped       integer NOT NULL DEFAULT 0,    -- nothing is left that could be sent again
    failed        integer NOT NULL DEFAULT 0,    -- the database refused
    cursor_at     timestamptz,                   -- created_at and id of the last one looked at
    cursor_id     uuid,
    next_at       timestamptz NOT NULL DEFAULT now(),
    created_at    timestamptz NOT NULL DEFAULT now(), -- dead letters from after it are none of its business
    updated_at    timestamptz NOT NULL DEFAULT now(),
    finished_at   timestamptz,
    CONSTRAINT dead_letter_replays_finished_has_time CHECK ((status = 'COMPLETED') = (finished_at IS NOT NULL))
);
CREATE INDEX IF NOT EXISTS dead_letter_replays_open ON dead_letter_replays (id) WHERE status = 'RUNNING';

-- +goose Down

DROP TABLE dead_letter_replays;
DROP INDEX CONCURRENTLY dead_letters_company;
ALTER TABLE dead_letters DROP CONSTRAINT dead_letters_resolution;
ALTER TABLE dead_letters DROP COLUMN resolution, DROP COLUMN resolved_by, DROP COLUMN resolution_note, DROP COLUMN replay_id;
