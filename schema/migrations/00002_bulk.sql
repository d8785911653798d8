-- Mailings, recipient intake and suppression: what comes in bulk, on the same outbox.

-- +goose Up

-- Jobs for RabbitMQ stand in lanes as well, so that one company's thousand batches do
-- not delay another's, and a suspended company's wait.
ALTER TABLE dispatch_lanes DROP CONSTRAINT dispatch_lanes_queue_check;
ALTER TABLE dispatch_lanes ADD CONSTRAINT dispatch_lanes_queue_check CHECK (
    queue IN ('email:send:high', 'email:send', 'email:send:low', 'mailing.jobs.process', 'recipients_queue'));
INSERT INTO dispatch_lanes (company_id, queue)
SELECT c.id, q.queue FROM companies c CROSS JOIN (VALUES ('mailing.jobs.process'), ('recipients_queue')) AS q (queue)
ON CONFLICT DO NOTHING;

-- An email of a mailing has no body of its own: it is rendered when it is sent. A job
-- has a lane too.
ALTER TABLE email_outbox DROP CONSTRAINT email_outbox_email_is_complete;
ALTER TABLE email_outbox ADD CONSTRAINT email_outbox_email_is_complete CHECK (
    lane_id IS NOT NULL AND (target <> 'email:send' OR (sender IS NOT NULL AND (
        (html IS NOT NULL AND html_sha256 IS NOT NULL AND checker_version IS NOT NULL)
        OR starts_with(coalesce(payload ->> 'htmlRef', ''), 'mailing:')))));

CREATE TABLE mailings (
    id              uuid PRIMARY KEY, -- UUIDv7
    company_id      uuid NOT NULL REFERENCES companies,
    request_id      text NOT NULL,
    filename        text NOT NULL CHECK (length(filename) BETWEEN 1 AND 255),
    storage_url     text NOT NULL,    -- of the encrypted file
    file_sha256     bytea NOT NULL CHECK (length(file_sha256) = 32),
    request_sha256  bytea NOT NULL CHECK (length(request_sha256) = 32), -- of all that the request said, the file included
    answer          bytea NOT NULL,   -- given again when the request is repeated
    dry_run         boolean NOT NULL DEFAULT false,
    nothing_to_send boolean NOT NULL DEFAULT false, -- no row was good: the mended file may have the same name

    subject         text NOT NULL,    -- subject, html and text_body are templates
    html            text NOT NULL,
    text_body       text,
    html_sha256     bytea NOT NULL,
    checker_version smallint NOT NULL,
    fields          text[] NOT NULL,  -- the columns that the templates use: what mailing_entries.fields holds, in this order
    sender          text NOT NULL,
    reply_to        text,
    tags            text[] NOT NULL DEFAULT '{}',
    delivery        text NOT NULL DEFAULT 'at_least_once' CHECK (delivery IN ('at_least_once', 'at_most_once')),
    send_at         timestamptz,

    status          text NOT NULL CHECK (status IN ('QUEUED', 'PENDING', 'PROCESSING', 'SENDING', 'PAUSED', 'COMPLETED', 'CANCELLED', 'FAILED')),
    generation      integer NOT NULL DEFAULT 1, -- a job of an older one has nothing to do any more
    attempts        integer NOT NULL DEFAULT 0, -- job tries in a row that failed
    last_attempt    timestamptz,                -- the expander's heartbeat; NULL = nobody is at it
    error_message   text,
    first_entry     uuid,                       -- the entries' ids lie between these two, in the order of
    last_entry      uuid,                       -- the file's lines; NULL = there are none
    expanded_to     uuid,                       -- up to here entries have become emails, or are INVALID
    expanded_at     timestamptz,                -- all of them have
    settling        text CHECK (settling IN ('cancel', 'retry-failed')), -- what remains to be done to the entries,
    settled_to      uuid,                                                -- and how far it has come

    total_lines     integer NOT NULL,
    processed_lines integer NOT NULL DEFAULT 0, -- entries behind expanded_to
    accepted        integer NOT NULL,           -- total_lines = accepted + invalid + duplicates, as of the upload
    invalid         integer NOT NULL,
    duplicates      integer NOT NULL,
    invalid_by_reason jsonb NOT NULL DEFAULT '{}', -- invalid, by the codes of its verdicts

    -- Counted from the entries by a loop, never by an email.
    invalid_later   integer NOT NULL DEFAULT 0, -- found when it was expanded
    queued          integer NOT NULL DEFAULT 0,
    sent            integer NOT NULL DEFAULT 0,
    failed          integer NOT NULL DEFAULT 0,
    suppressed      integer NOT NULL DEFAULT 0,
    expired         integer NOT NULL DEFAULT 0,
    cancelled       integer NOT NULL DEFAULT 0,
    unknown         integer NOT NULL DEFAULT 0, -- FAILED, and the provider may have taken it
    rate            double precision NOT NULL DEFAULT 0, -- entries that ended per second, lately
    counted_at      timestamptz,                -- NULL = the numbers above are out of date

    created_at      timestamptz NOT NULL DEFAULT now(),
    updated_at      timestamptz NOT NULL DEFAULT now(),
    completed_at    timestamptz,

    CONSTRAINT mailings_lines_add_up CHECK (total_lines = accepted + invalid + duplicates),
    CONSTRAINT mailings_complete_when_all_ended CHECK (
        status <> 'COMPLETED' OR dry_run
        OR accepted = sent + failed + invalid_later + suppressed + cancelled + expired + unknown)
);
ALTER TABLE mailings SET (fillfactor = 70);

CREATE UNIQUE INDEX mailings_filename ON mailings (company_id, filename)
    WHERE NOT dry_run AND NOT nothing_to_send AND status NOT IN ('CANCELLED', 'FAILED');
CREATE INDEX mailings_company ON mailings (company_id, id);
-- What the loops look at: never more rows than there are mailings at work.
CREATE INDEX mailings_open ON mailings (id)
    WHERE status IN ('QUEUED', 'PENDING', 'PROCESSING', 'SENDING', 'PAUSED') OR settling IS NOT NULL OR counted_at IS NULL;

-- One row per address of a mailing. id is the outbox id of the email made from it: an
-- entry cannot become two emails, and the email's end finds its entry. Ids ascend with
-- the file's lines, so a mailing is a range of the primary key. A foreign key would
-- check each of a million rows once more.
CREATE TABLE mailing_entries (
    id                    uuid PRIMARY KEY,
    mailing_id            uuid NOT NULL,
    line_no               integer NOT NULL CHECK (line_no > 0),
    email                 text NOT NULL CHECK (length(email) <= 255),
    token                 text NOT NULL,  -- verification token, for {{token}}
    status                text NOT NULL DEFAULT 'PENDING' CHECK (status IN ('PENDING', 'INVALID', 'QUEUED', 'SENT', 'FAILED', 'EXPIRED', 'CANCELLED', 'SUPPRESSED')),
    outcome_unknown       boolean NOT NULL DEFAULT false, -- FAILED, and the provider may have taken it
    attempts              integer NOT NULL DEFAULT 0,
    last_attempt          timestamptz,
    external_id           text,           -- the provider's message id
    invalid_reason        text CHECK (invalid_reason IN ('syntax', 'disposable', 'mx')),
    validation_details    text,
    fields                text[] NOT NULL DEFAULT '{}', -- values of mailings.fields; never a CPF or CNPJ
    nome                  text,
    razao_social          text,
    recipient_external_id text,
    cpf_cnpj_hash         text CHECK (cpf_cnpj_hash ~ '^[0-9a-f]{64}$'),
    cpf_cnpj_enc          bytea,          -- until the expander moves it to recipients
    recipient_id          uuid,
    created_at            timestamptz NOT NULL DEFAULT now(),
    updated_at            timestamptz NOT NULL DEFAULT now(),
    CONSTRAINT mailing_entries_invalid_has_reason CHECK ((status = 'INVALID') = (invalid_reason IS NOT NULL))
);
-- Each entry is updated twice or three times, and status is in no index: room in the
-- row's own page keeps those updates there (HOT).
ALTER TABLE mailing_entries SET (fillfactor = 80, autovacuum_vacuum_scale_factor = 0.05);
CREATE UNIQUE INDEX mailing_entries_address ON mailing_entries (mailing_id, lower(email));

-- Lines that are no entries: unreadable ones, duplicates. Never the value itself.
CREATE TABLE mailing_rejects (
    mailing_id  uuid NOT NULL,
    line_no     integer NOT NULL CHECK (line_no > 0),
    column_name text,
    code        text NOT NULL,
    PRIMARY KEY (mailing_id, line_no)
);

-- UNSUBSCRIBE keeps mailings from an address; the other reasons keep everything from it.
CREATE TABLE suppressions (
    company_id  uuid NOT NULL REFERENCES companies,
    address     text NOT NULL CHECK (address = lower(address) AND address <> ''),
    reason      text NOT NULL CHECK (reason IN ('UNSUBSCRIBE', 'BOUNCE', 'COMPLAINT', 'MANUAL')),
    mailing_id  uuid,           -- whose link it was
    note        text,
    created_at  timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (company_id, address, reason)
);

-- Recipients that were accepted and wait for RabbitMQ: an email may name them already.
CREATE TABLE recipient_intakes (
    recipient_id  uuid NOT NULL,
    outbox_id     uuid NOT NULL,
    company_id    uuid NOT NULL,
    email         text NOT NULL,
    PRIMARY KEY (recipient_id, outbox_id)
);

-- The intake that wrote the row last: an older one that was retried must not win over it.
ALTER TABLE recipients ADD COLUMN intake_id uuid;

CREATE INDEX dead_letters_mailing ON dead_letters (mailing_id) WHERE mailing_id IS NOT NULL;
CREATE INDEX dead_letters_age ON dead_letters (created_at);

-- +goose Down

DROP INDEX dead_letters_age, dead_letters_mailing;
ALTER TABLE recipients DROP COLUMN intake_id;
DROP TABLE recipient_intakes, suppressions, mailing_rejects, mailing_entries, mailings;
DELETE FROM email_outbox WHERE target <> 'email:send' OR html IS NULL;
ALTER TABLE email_outbox DROP CONSTRAINT email_outbox_email_is_complete;
ALTER TABLE email_outbox ADD CONSTRAINT email_outbox_email_is_complete CHECK (
    target <> 'email:send' OR (lane_id IS NOT NULL AND sender IS NOT NULL AND html IS NOT NULL
                               AND html_sha256 IS NOT NULL AND checker_version IS NOT NULL));
DELETE FROM dispatch_lanes WHERE mailing_id IS NOT NULL OR queue IN ('mailing.jobs.process', 'recipients_queue');
ALTER TABLE dispatch_lanes DROP CONSTRAINT dispatch_lanes_queue_check;
ALTER TABLE dispatch_lanes ADD CONSTRAINT dispatch_lanes_queue_check CHECK (
    queue IN ('email:send:high', 'email:send', 'email:send:low'));
