-- The tables of the single-email path. schema/README.md draws the states and names,
-- for each index, the query it is there for.

-- +goose Up

CREATE TABLE companies (
    id                uuid PRIMARY KEY,
    name              text NOT NULL UNIQUE CHECK (name <> ''),
    default_from      text NOT NULL CHECK (default_from <> ''),
    suspended_at      timestamptz,
    suspended_reason  text,
    created_at        timestamptz NOT NULL DEFAULT now()
);

-- A key is shown once: key_id is its public part, the secret is only kept as a hash.
CREATE TABLE api_keys (
    key_id         text PRIMARY KEY,
    company_id     uuid NOT NULL REFERENCES companies,
    name           text NOT NULL,
    environment    text NOT NULL CHECK (environment ~ '^[a-z0-9]{1,16}$'),
    secret_sha256  bytea NOT NULL CHECK (length(secret_sha256) = 32),
    scopes         text[] NOT NULL CHECK (scopes <> '{}'),
    rate_per_second integer NOT NULL DEFAULT 200 CHECK (rate_per_second >= 0), -- 0 = no limit
    burst          integer NOT NULL DEFAULT 400 CHECK (burst >= 0),
    created_at     timestamptz NOT NULL DEFAULT now(),
    revoked_at     timestamptz
);

CREATE TABLE sender_domains (
    company_id  uuid NOT NULL REFERENCES companies,
    domain      text NOT NULL CHECK (domain = lower(domain)), -- in its ASCII form
    created_at  timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (company_id, domain)
);

-- The only place a CPF or CNPJ is kept, and only encrypted. id is derived from
-- company and identifier, so the same person has the same id in every request.
CREATE TABLE recipients (
    id             uuid PRIMARY KEY,
    company_id     uuid NOT NULL REFERENCES companies,
    external_id    text,
    cpf_cnpj_hash  text CHECK (cpf_cnpj_hash ~ '^[0-9a-f]{64}$'),
    cpf_cnpj_enc   bytea,
    razao_social   text,
    nome           text,
    email          text NOT NULL,
    created_at     timestamptz NOT NULL DEFAULT now(),
    updated_at     timestamptz NOT NULL DEFAULT now(),
    deleted_at     timestamptz
);

-- A lane is what the dispatcher takes turns over: pausing one is one small update
-- however many emails stand in it.
CREATE TABLE dispatch_lanes (
    id            bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    company_id    uuid NOT NULL REFERENCES companies,
    queue         text NOT NULL CHECK (queue IN ('email:send:high', 'email:send', 'email:send:low')),
    mailing_id    uuid,
    paused_at     timestamptz,
    parked_until  timestamptz,
    created_at    timestamptz NOT NULL DEFAULT now(),
    UNIQUE NULLS NOT DISTINCT (company_id, queue, mailing_id)
);

CREATE TABLE email_outbox (
    id                 uuid PRIMARY KEY, -- UUIDv7: sorts by time of acceptance
    company_id         uuid NOT NULL,
    lane_id            bigint,           -- looked up by the insert itself; a foreign key would lock the lane's row per email
    target             text NOT NULL DEFAULT 'email:send',
    request_id         text NOT NULL,
    payload            jsonb NOT NULL,
    sender             text,             -- From, with its display name
    html               text,
    text_body          text,
    cpf_cnpj_enc       bytea,            -- until the worker's first write moves it to recipients
    status             text NOT NULL DEFAULT 'PENDING',
    priority           smallint NOT NULL DEFAULT 5 CHECK (priority BETWEEN 1 AND 10),
    attempts           integer NOT NULL DEFAULT 0,
    throttles          integer NOT NULL DEFAULT 0,
    last_error         text,
    next_at            timestamptz NOT NULL DEFAULT now(),
    expires_at         timestamptz NOT NULL,
    enqueued_at        timestamptz,
    processed_at       timestamptz,
    created_at         timestamptz NOT NULL DEFAULT now(),
    claim_token        uuid,             -- the attempt's id; kept after the lease, so a late answer finds its row
    lease_until        timestamptz,
    delivery           text NOT NULL DEFAULT 'at_least_once' CHECK (delivery IN ('at_least_once', 'at_most_once')),
    outcome_unknown    boolean NOT NULL DEFAULT false,
    possible_duplicate boolean NOT NULL DEFAULT false,
    html_sha256        bytea,
    checker_version    smallint,

    CONSTRAINT email_outbox_status CHECK (
        CASE target
            WHEN 'email:send' THEN status IN ('PENDING', 'ENQUEUED', 'PROCESSING', 'RETRY_SCHEDULED', 'OUTCOME_UNKNOWN',
                                              'SENT', 'FAILED', 'EXPIRED', 'CANCELLED', 'SUPPRESSED')
            WHEN 'mailing.process' THEN status IN ('PENDING', 'PUBLISHED', 'FAILED')
            WHEN 'recipients.upsert' THEN status IN ('PENDING', 'PUBLISHED', 'FAILED')
            ELSE false
        END),
    CONSTRAINT email_outbox_final_has_time CHECK (
        (status IN ('SENT', 'FAILED', 'EXPIRED', 'CANCELLED', 'SUPPRESSED', 'PUBLISHED')) = (processed_at IS NOT NULL)),
    CONSTRAINT email_outbox_processing_has_lease CHECK (
        (status = 'PROCESSING') = (lease_until IS NOT NULL) AND (status <> 'PROCESSING' OR claim_token IS NOT NULL)),
    CONSTRAINT email_outbox_email_is_complete CHECK (
        target <> 'email:send' OR (lane_id IS NOT NULL AND sender IS NOT NULL AND html IS NOT NULL
                                   AND html_sha256 IS NOT NULL AND checker_version IS NOT NULL)),
    CONSTRAINT email_outbox_counters CHECK (attempts >= 0 AND throttles BETWEEN 0 AND attempts)
);

-- Fillfactor 70: each email is updated three or four times within seconds, and room
-- in the row's own page keeps those versions next to each other.
ALTER TABLE email_outbox SET (fillfactor = 70, autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_cost_delay = 0);

-- Bodies are compressed on every insert: lz4 does it several times faster. Postgres
-- can be built without it.
-- +goose StatementBegin
DO $$
BEGIN
    IF (SELECT 'lz4' = ANY (enumvals) FROM pg_settings WHERE name = 'default_toast_compression') THEN
        ALTER TABLE email_outbox ALTER COLUMN html SET COMPRESSION lz4, ALTER COLUMN text_body SET COMPRESSION lz4;
    END IF;
END
$$;
-- +goose StatementEnd

CREATE INDEX email_outbox_lane_claim ON email_outbox (lane_id, next_at, id)
    WHERE status IN ('PENDING', 'RETRY_SCHEDULED') AND target = 'email:send';
CREATE INDEX email_outbox_expiry ON email_outbox (expires_at)
    WHERE status IN ('PENDING', 'ENQUEUED', 'RETRY_SCHEDULED') AND target = 'email:send';
CREATE INDEX email_outbox_company ON email_outbox (company_id, id);

-- One row per email from its first event on. It outlives the outbox row, hence no
-- foreign key to it.
CREATE TABLE email_logs (
    outbox_id          uuid PRIMARY KEY,
    company_id         uuid NOT NULL,
    recipient_id       uuid,
    recipient          text NOT NULL,      -- the address as given
    subject            text NOT NULL,
    status             text NOT NULL CHECK (status IN ('PENDING', 'ENQUEUED', 'PROCESSING', 'RETRY_SCHEDULED', 'OUTCOME_UNKNOWN',
                                                       'SENT', 'FAILED', 'EXPIRED', 'CANCELLED', 'SUPPRESSED')),
    ses_message_id     text,               -- not unique: emulators repeat theirs
    error_code         text,
    error_reason       text,
    attempts           integer NOT NULL,
    throttles          integer NOT NULL DEFAULT 0,
    duration_ms        integer,
    request_id         text NOT NULL,
    external_id        text,
    tags               text[] NOT NULL DEFAULT '{}',
    possible_duplicate boolean NOT NULL DEFAULT false,
    expires_at         timestamptz NOT NULL,
    created_at         timestamptz NOT NULL,
    sent_at            timestamptz,
    failed_at          timestamptz,
    event_seq          integer NOT NULL,   -- the newest event's seq and type: the next
    last_event         text NOT NULL,      -- event names it as its predecessor
    CONSTRAINT email_logs_sent_has_time CHECK (status <> 'SENT' OR sent_at IS NOT NULL),
    CONSTRAINT email_logs_failed_has_time CHECK (status <> 'FAILED' OR failed_at IS NOT NULL)
);

-- status is in no index on purpose: the update that ends an email then stays within
-- its page (HOT) and touches none of the four.
ALTER TABLE email_logs SET (fillfactor = 80);

CREATE INDEX email_logs_company ON email_logs (company_id, outbox_id);
CREATE INDEX email_logs_recipient ON email_logs (company_id, lower(recipient), outbox_id);
CREATE INDEX email_logs_request ON email_logs (company_id, request_id, outbox_id);
CREATE INDEX email_logs_external ON email_logs (company_id, external_id, outbox_id) WHERE external_id IS NOT NULL;

-- The timeline. A row names its predecessor's type, and the CHECK holds every pair
-- that the state diagram allows: a path it does not draw cannot be stored.
CREATE TABLE email_events (
    email_log_id  uuid NOT NULL, -- written in the statement that writes the log; a foreign key would check every event once more
    seq           integer NOT NULL CHECK (seq > 0),
    previous      text,
    type          text NOT NULL,
    metadata      jsonb NOT NULL DEFAULT '{}',
    created_at    timestamptz NOT NULL,
    PRIMARY KEY (email_log_id, seq),
    CONSTRAINT email_events_first CHECK ((seq = 1) = (previous IS NULL)),
    CONSTRAINT email_events_path CHECK (
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
        END)
);

-- The answer given to a request that carried an Idempotency-Key, written in the same
-- commit as the row it made.
CREATE TABLE idempotency_keys (
    company_id   uuid NOT NULL,
    route        text NOT NULL,
    key          text NOT NULL CHECK (length(key) BETWEEN 1 AND 255),
    body_sha256  bytea NOT NULL CHECK (length(body_sha256) = 32),
    status       smallint NOT NULL,
    answer       bytea NOT NULL,
    outbox_id    uuid NOT NULL,
    created_at   timestamptz NOT NULL DEFAULT now(),
    expires_at   timestamptz NOT NULL,
    PRIMARY KEY (company_id, route, key)
);
CREATE INDEX idempotency_keys_expiry ON idempotency_keys (expires_at);

-- What gave up, with its reason, until somebody looked at it.
CREATE TABLE dead_letters (
    id           uuid PRIMARY KEY,
    company_id   uuid,
    mailing_id   uuid,
    outbox_id    uuid,
    target       text NOT NULL,
    email        text,
    reason       text NOT NULL,
    attempts     integer NOT NULL DEFAULT 0,
    last_error   text,
    payload      jsonb NOT NULL,
    created_at   timestamptz NOT NULL DEFAULT now(),
    updated_at   timestamptz NOT NULL DEFAULT now(),
    resolved_at  timestamptz
);
CREATE INDEX dead_letters_open ON dead_letters (outbox_id) WHERE resolved_at IS NULL;

-- Each dispatcher and worker writes its view of the parts it talks to every 5 s.
CREATE TABLE process_status (
    service     text NOT NULL CHECK (service IN ('dispatcher', 'worker')),
    instance    text NOT NULL,
    started_at  timestamptz NOT NULL,
    updated_at  timestamptz NOT NULL DEFAULT now(),
    details     jsonb NOT NULL,
    PRIMARY KEY (service, instance)
);

-- +goose Down

DROP TABLE process_status, dead_letters, idempotency_keys, email_events, email_logs, email_outbox,
           dispatch_lanes, recipients, sender_domains, api_keys, companies;
