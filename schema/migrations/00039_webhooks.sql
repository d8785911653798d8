-- Webhook endpoints: each has a cursor over its company's events. Only deliveries that failed have
-- rows; they refer to their event and hold nothing of it.
--
-- Programs of the release before run beside this: they do not know the tables.

-- +goose Up

CREATE TABLE webhook_endpoints (
    id                   uuid PRIMARY KEY,               -- UUIDv7
    company_id           uuid NOT NULL REFERENCES companies (id),
    slot                 smallint NOT NULL CHECK (slot BETWEEN 1 AND 20), -- a company has at most 20
    url                  text NOT NULL CHECK (length(url) BETWEEN 1 AND 2048),
    description          text,
    types                text[] NOT NULL DEFAULT '{}',   -- event types and prefixes such as email.*; empty = all
    status               text NOT NULL DEFAULT 'ENABLED' CHECK (status IN ('ENABLED', 'DISABLED')),
    disabled_reason      text CHECK (disabled_reason IN ('REQUESTED', 'OPERATOR', 'GONE', 'FAILING')),
    disabled_at          timestamptz,
    secret_enc           bytea NOT NULL,
    old_secret_enc       bytea,                          -- signs too until old_secret_until
    old_secret_until     timestamptz,
    feed_position        bigint NOT NULL,                -- the last event handled: a row of event_feed, and
    feed_number          bigint NOT NULL DEFAULT 4611686018427387904, -- an event of it: the index of its email in the row << 32, and its seq; the default is behind all of them
    failures             integer NOT NULL DEFAULT 0,     -- failed attempts since the last success
    failing_since        timestamptz,                    -- the first of them
    last_success_at      timestamptz,
    last_failure_at      timestamptz,
    last_error           text,                           -- the code of the last failure
    not_before           timestamptz,                    -- the endpoint's Retry-After
    due_at               timestamptz,                    -- when a delivery or a replay is due; NULL = none
    open_deliveries      integer NOT NULL DEFAULT 0,     -- RETRYING and WAITING
    lease_token          uuid,                           -- the process that serves the endpoint
    lease_until          timestamptz,
    created_at           timestamptz NOT NULL DEFAULT now(),
    updated_at           timestamptz NOT NULL DEFAULT now(),
    CONSTRAINT webhook_endpoints_slot UNIQUE (company_id, slot),
    CONSTRAINT webhook_endpoints_disabled CHECK ((status = 'DISABLED') = (disabled_reason IS NOT NULL) AND (status = 'DISABLED') = (disabled_at IS NOT NULL)),
    CONSTRAINT webhook_endpoints_old_secret CHECK ((old_secret_enc IS NULL) = (old_secret_until IS NULL)),
    CONSTRAINT webhook_endpoints_lease CHECK ((lease_token IS NULL) = (lease_until IS NULL)),
    CONSTRAINT webhook_endpoints_failing CHECK ((failures > 0) = (failing_since IS NOT NULL))
);
CREATE INDEX webhook_endpoints_due ON webhook_endpoints (due_at) WHERE status = 'ENABLED' AND due_at IS NOT NULL;

-- One row per delivery whose first attempt failed, or that waits behind one of the same email, and
-- per test.
CREATE TABLE webhook_deliveries (
    id              uuid PRIMARY KEY,                    -- UUIDv7
    endpoint_id     uuid NOT NULL REFERENCES webhook_endpoints (id) ON DELETE CASCADE,
    company_id      uuid NOT NULL,
    event_id        text NOT NULL CHECK (length(event_id) BETWEEN 1 AND 100), -- the header webhook-id
    type            text NOT NULL,
    position        bigint NOT NULL,                     -- of the event in the feed; 0 = a test
    email_id        uuid,                                -- deliveries of one email are made in order of position
    status          text NOT NULL CHECK (status IN ('RETRYING', 'WAITING', 'DELIVERED', 'FAILED')),
    attempts        integer NOT NULL DEFAULT 0,
    next_at         timestamptz,
    last_attempt_at timestamptz,
    last_status     integer,                             -- of the last response; NULL = none
    last_error      text,
    last_took_ms    integer,
    created_at      timestamptz NOT NULL DEFAULT now(),
    updated_at      timestamptz NOT NULL DEFAULT now(),
    CONSTRAINT webhook_deliveries_event UNIQUE (endpoint_id, event_id),
    CONSTRAINT webhook_deliveries_due CHECK ((status = 'RETRYING') = (next_at IS NOT NULL))
);
CREATE INDEX webhook_deliveries_retrying ON webhook_deliveries (endpoint_id, next_at, id) WHERE status = 'RETRYING';
CREATE INDEX webhook_deliveries_open ON webhook_deliveries (endpoint_id, email_id, position) WHERE status IN ('RETRYING', 'WAITING');
CREATE INDEX webhook_deliveries_failed ON webhook_deliveries (endpoint_id, position, id) WHERE status = 'FAILED';
CREATE INDEX webhook_deliveries_list ON webhook_deliveries (endpoint_id, id);
CREATE INDEX webhook_deliveries_tests ON webhook_deliveries (endpoint_id, id) WHERE position = 0;

-- A request to deliver events again: all failed deliveries, or the events of a range of time.
CREATE TABLE webhook_replays (
    id            uuid PRIMARY KEY,                      -- UUIDv7
    endpoint_id   uuid NOT NULL REFERENCES webhook_endpoints (id) ON DELETE CASCADE,
    company_id    uuid NOT NULL,
    since         timestamptz,                           -- NULL = the failed deliveries
    until         timestamptz,
    feed_position bigint NOT NULL DEFAULT 0,             -- the last event handled
    feed_number   bigint NOT NULL DEFAULT 4611686018427387904,
    last_position bigint NOT NULL DEFAULT 0,             -- and the last one that belongs to it
    status        text NOT NULL DEFAULT 'RUNNING' CHECK (status IN ('RUNNING', 'COMPLETED')),
    done          integer NOT NULL DEFAULT 0,
    created_at    timestamptz NOT NULL DEFAULT now(),
    finished_at   timestamptz,
    CONSTRAINT webhook_replays_range CHECK ((since IS NULL) = (until IS NULL)),
    CONSTRAINT webhook_replays_finished CHECK ((status = 'COMPLETED') = (finished_at IS NOT NULL))
);
CREATE INDEX webhook_replays_running ON webhook_replays (endpoint_id, id) WHERE status = 'RUNNING';

-- +goose Down

DROP TABLE webhook_replays;
DROP TABLE webhook_deliveries;
DROP TABLE webhook_endpoints;
