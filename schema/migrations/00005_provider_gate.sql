-- The brake before the provider that all workers share, and the operator's own hold on a
-- lane. paused_at of a lane belongs to the mailing's owner; held_at to the operator, so
-- that neither takes back what the other did.

-- +goose Up

-- One row. Every claim reads it, so a commit that shuts the gate holds back every claim
-- that begins after it, on all workers.
CREATE TABLE provider_gate (
    id           smallint PRIMARY KEY DEFAULT 1 CHECK (id = 1),
    state        text NOT NULL DEFAULT 'open' CHECK (state IN ('open', 'shut')),
    since        timestamptz NOT NULL DEFAULT now(), -- of the state
    reason       text,                               -- code of the answer that shut it; NULL = open
    changed_by   text,                               -- the process that made it so
    attempt_id   uuid,                               -- the attempt that shut it last
    shuts        bigint NOT NULL DEFAULT 0,          -- how often it was shut: tells one time from the next
    probe_id     uuid,                               -- the one email that passes a shut gate
    probe_at     timestamptz,                        -- when it was chosen; the next one is due a pause later, whatever became of it
    held_at      timestamptz,                        -- an operator's: no probe passes, and none opens it
    held_reason  text,
    CONSTRAINT provider_gate_shut_has_reason CHECK ((state = 'shut') = (reason IS NOT NULL)),
    CONSTRAINT provider_gate_held_has_reason CHECK ((held_at IS NULL) = (held_reason IS NULL))
);
INSERT INTO provider_gate DEFAULT VALUES;

ALTER TABLE dispatch_lanes
    ADD COLUMN held_at timestamptz,
    ADD COLUMN held_reason text,
    ADD CONSTRAINT dispatch_lanes_held_has_reason CHECK ((held_at IS NULL) = (held_reason IS NULL));

-- +goose Down

ALTER TABLE dispatch_lanes DROP COLUMN held_at, DROP COLUMN held_reason;
DROP TABLE provider_gate;
