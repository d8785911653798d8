-- The schema as the migrations make it, to read and to search. It is generated and never run: TestDump compares it with a migrated
-- database, and this writes it again: ./scripts/test.sh ./schema/ -run TestDump -update
--
-- The partitions by month of email_logs and email_events are left out, and so are privileges, which roles.sql grants.
-- README.md describes each table and index.

CREATE AGGREGATE first_present(anyelement) (
    SFUNC = first_present_step,
    STYPE = anyelement,
    PARALLEL = safe
);

CREATE TABLE api_keys (
    key_id text NOT NULL,
    company_id uuid NOT NULL,
    name text NOT NULL,
    environment text NOT NULL,
    secret_sha256 bytea NOT NULL,
    scopes text[] NOT NULL,
    rate_per_second integer DEFAULT 200 NOT NULL,
    burst integer DEFAULT 400 NOT NULL,
    created_at timestamp with time zone DEFAULT now() NOT NULL,
    revoked_at timestamp with time zone,
    expires_at timestamp with time zone,
    networks cidr[] DEFAULT '{}'::cidr[] NOT NULL,
    CONSTRAINT api_keys_burst_check CHECK ((burst >= 0)),
    CONSTRAINT api_keys_environment_check CHECK ((environment ~ '^[a-z0-9]{1,16}$'::text)),
    CONSTRAINT api_keys_rate_per_second_check CHECK ((rate_per_second >= 0)),
    CONSTRAINT api_keys_scopes_check CHECK ((scopes <> '{}'::text[])),
    CONSTRAINT api_keys_secret_sha256_check CHECK ((length(secret_sha256) = 32))
);

CREATE TABLE attachments (
    owner_id uuid NOT NULL,
    "position" smallint NOT NULL,
    company_id uuid NOT NULL,
    file_id uuid NOT NULL,
    filename text NOT NULL,
    content_type text NOT NULL,
    content_id text,
    disposition text NOT NULL,
    CONSTRAINT attachments_content_id_check CHECK (((length(content_id) >= 1) AND (length(content_id) <= 78))),
    CONSTRAINT attachments_content_type_check CHECK (((length(content_type) >= 1) AND (length(content_type) <= 78))),
    CONSTRAINT attachments_disposition_check CHECK ((disposition = ANY (ARRAY['attachment'::text, 'inline'::text]))),
    CONSTRAINT attachments_filename_check CHECK (((length(filename) >= 1) AND (length(filename) <= 255))),
    CONSTRAINT attachments_position_check CHECK ((("position" >= 0) AND ("position" <= 9)))
);

CREATE TABLE companies (
    id uuid NOT NULL,
    name text NOT NULL,
    default_from text NOT NULL,
    suspended_at timestamp with time zone,
    suspended_reason text,
    created_at timestamp with time zone DEFAULT now() NOT NULL,
    mailings_paused_at timestamp with time zone,
    CONSTRAINT companies_default_from_check CHECK ((default_from <> ''::text)),
    CONSTRAINT companies_name_check CHECK ((name <> ''::text))
);

CREATE TABLE company_events (
    id uuid NOT NULL,
    company_id uuid NOT NULL,
    type text NOT NULL,
    metadata jsonb DEFAULT '{}'::jsonb NOT NULL,
    created_at timestamp with time zone DEFAULT now() NOT NULL,
    CONSTRAINT company_events_type_check CHECK ((type = ANY (ARRAY['REPUTATION_WARNING'::text, 'MAILINGS_PAUSED'::text, 'MAILINGS_RESUMED'::text, 'WEBHOOK_DISABLED'::text])))
);

CREATE TABLE company_quotas (
    company_id uuid NOT NULL,
    scheduled_emails bigint,
    emails_per_day bigint,
    stored_body_bytes bigint,
    recipients bigint,
    suppressions bigint,
    stored_file_bytes bigint,
    running_mailings bigint,
    mailing_rows_per_day bigint,
    updated_at timestamp with time zone DEFAULT now() NOT NULL,
    CONSTRAINT company_quotas_emails_per_day_check CHECK ((emails_per_day >= 0)),
    CONSTRAINT company_quotas_mailing_rows_per_day_check CHECK ((mailing_rows_per_day >= 0)),
    CONSTRAINT company_quotas_recipients_check CHECK ((recipients >= 0)),
    CONSTRAINT company_quotas_running_mailings_check CHECK ((running_mailings >= 0)),
    CONSTRAINT company_quotas_scheduled_emails_check CHECK ((scheduled_emails >= 0)),
    CONSTRAINT company_quotas_stored_body_bytes_check CHECK ((stored_body_bytes >= 0)),
    CONSTRAINT company_quotas_stored_file_bytes_check CHECK ((stored_file_bytes >= 0)),
    CONSTRAINT company_quotas_suppressions_check CHECK ((suppressions >= 0))
);

CREATE TABLE company_reputation (
    company_id uuid NOT NULL,
    enabled boolean,
    counts_from timestamp with time zone DEFAULT '-infinity'::timestamp with time zone NOT NULL,
    feed_position bigint,
    checked_at timestamp with time zone,
    check_at timestamp with time zone,
    warnings jsonb DEFAULT '{}'::jsonb NOT NULL,
    pause jsonb
);

CREATE TABLE company_reputation_rules (
    company_id uuid NOT NULL,
    rule text NOT NULL,
    warn_ppm integer NOT NULL,
    pause_ppm integer NOT NULL,
    min_sent integer NOT NULL,
    min_events integer NOT NULL,
    CONSTRAINT company_reputation_rules_check CHECK (((pause_ppm >= warn_ppm) AND (pause_ppm <= 1000000))),
    CONSTRAINT company_reputation_rules_min_events_check CHECK ((min_events > 0)),
    CONSTRAINT company_reputation_rules_min_sent_check CHECK ((min_sent > 0)),
    CONSTRAINT company_reputation_rules_rule_check CHECK ((rule = ANY (ARRAY['complaints_1h'::text, 'complaints_24h'::text, 'bounces_1h'::text, 'bounces_24h'::text]))),
    CONSTRAINT company_reputation_rules_warn_ppm_check CHECK ((warn_ppm > 0))
);

CREATE TABLE company_retention (
    company_id uuid NOT NULL,
    bodies_days integer,
    files_days integer,
    logs_days integer,
    updated_at timestamp with time zone DEFAULT now() NOT NULL,
    hashes_days integer,
    CONSTRAINT company_retention_bodies_days_check CHECK (((bodies_days >= 1) AND (bodies_days <= 3650))),
    CONSTRAINT company_retention_files_days_check CHECK (((files_days >= 1) AND (files_days <= 3650))),
    CONSTRAINT company_retention_hashes_days_check CHECK (((hashes_days >= 1) AND (hashes_days <= 3650))),
    CONSTRAINT company_retention_logs_days_check CHECK (((logs_days >= 1) AND (logs_days <= 3650)))
);

CREATE TABLE dead_letter_replays (
    id uuid NOT NULL,
    company_id uuid,
    action text NOT NULL,
    filter jsonb NOT NULL,
    requested_by text NOT NULL,
    request_id text DEFAULT ''::text NOT NULL,
    note text,
    most integer,
    rate integer NOT NULL,
    status text DEFAULT 'RUNNING'::text NOT NULL,
    matched integer NOT NULL,
    done integer DEFAULT 0 NOT NULL,
    skipped integer DEFAULT 0 NOT NULL,
    failed integer DEFAULT 0 NOT NULL,
    cursor_at timestamp with time zone,
    cursor_id uuid,
    next_at timestamp with time zone DEFAULT now() NOT NULL,
    created_at timestamp with time zone DEFAULT now() NOT NULL,
    updated_at timestamp with time zone DEFAULT now() NOT NULL,
    finished_at timestamp with time zone,
    CONSTRAINT dead_letter_replays_action_check CHECK ((action = ANY (ARRAY['retry'::text, 'discard'::text]))),
    CONSTRAINT dead_letter_replays_finished_has_time CHECK (((status = 'COMPLETED'::text) = (finished_at IS NOT NULL))),
    CONSTRAINT dead_letter_replays_most_check CHECK ((most > 0)),
    CONSTRAINT dead_letter_replays_rate_check CHECK (((rate >= 1) AND (rate <= 1000))),
    CONSTRAINT dead_letter_replays_status_check CHECK ((status = ANY (ARRAY['RUNNING'::text, 'COMPLETED'::text])))
);

CREATE TABLE dead_letters (
    id uuid NOT NULL,
    company_id uuid,
    mailing_id uuid,
    outbox_id uuid,
    target text NOT NULL,
    email text,
    reason text NOT NULL,
    attempts integer DEFAULT 0 NOT NULL,
    last_error text,
    payload jsonb NOT NULL,
    created_at timestamp with time zone DEFAULT now() NOT NULL,
    updated_at timestamp with time zone DEFAULT now() NOT NULL,
    resolved_at timestamp with time zone,
    resolution text,
    resolved_by text,
    resolution_note text,
    replay_id uuid,
    CONSTRAINT dead_letters_resolution CHECK (((resolution IS NULL) OR ((resolution = ANY (ARRAY['retried'::text, 'discarded'::text, 'sent'::text])) AND (resolved_at IS NOT NULL))))
);

CREATE TABLE dispatch_batches (
    slot uuid NOT NULL,
    taken_at timestamp with time zone NOT NULL
);

CREATE TABLE dispatch_lanes (
    id bigint NOT NULL,
    company_id uuid NOT NULL,
    queue text NOT NULL,
    mailing_id uuid,
    paused_at timestamp with time zone,
    parked_until timestamp with time zone,
    created_at timestamp with time zone DEFAULT now() NOT NULL,
    held_at timestamp with time zone,
    held_reason text,
    CONSTRAINT dispatch_lanes_held_has_reason CHECK (((held_at IS NULL) = (held_reason IS NULL))),
    CONSTRAINT dispatch_lanes_queue_check CHECK ((queue = ANY (ARRAY['email:send:high'::text, 'email:send'::text, 'email:send:low'::text, 'mailing.jobs.process'::text, 'recipients_queue'::text])))
);

ALTER TABLE dispatch_lanes ALTER COLUMN id ADD GENERATED ALWAYS AS IDENTITY (
    SEQUENCE NAME dispatch_lanes_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);

CREATE TABLE dropped_tasks (
    enqueued_at timestamp with time zone NOT NULL,
    outbox_id uuid NOT NULL
);

CREATE TABLE email_events (
    email_log_id uuid NOT NULL,
    seq integer NOT NULL,
    previous text,
    type text NOT NULL,
    metadata jsonb DEFAULT '{}'::jsonb NOT NULL,
    created_at timestamp with time zone NOT NULL,
    CONSTRAINT email_events_first CHECK (((seq = 1) = (previous IS NULL))),
    CONSTRAINT email_events_path CHECK (
CASE COALESCE(previous, ''::text)
    WHEN ''::text THEN (type = ANY (ARRAY['RECEIVED'::text, 'RESCHEDULED'::text, 'CANCELLED'::text, 'EXPIRED'::text, 'SUPPRESSED'::text, 'SENT'::text]))
    WHEN 'RECEIVED'::text THEN (type = ANY (ARRAY['VALIDATED'::text, 'VALIDATION_FAILED'::text, 'SUPPRESSED'::text]))
    WHEN 'VALIDATED'::text THEN (type = 'SENT_ATTEMPT'::text)
    WHEN 'VALIDATION_FAILED'::text THEN (type = 'FAILED'::text)
    WHEN 'SENT_ATTEMPT'::text THEN (type = ANY (ARRAY['SENT'::text, 'FAILED'::text, 'RETRY_SCHEDULED'::text, 'OUTCOME_UNKNOWN'::text, 'RELEASED'::text]))
    WHEN 'OUTCOME_UNKNOWN'::text THEN (type = ANY (ARRAY['SENT'::text, 'FAILED'::text, 'RETRY_SCHEDULED'::text]))
    WHEN 'RESCHEDULED'::text THEN (type = ANY (ARRAY['RECEIVED'::text, 'RESCHEDULED'::text, 'CANCELLED'::text, 'EXPIRED'::text, 'SUPPRESSED'::text, 'SENT'::text]))
    WHEN 'RETRY_SCHEDULED'::text THEN (type = ANY (ARRAY['RECEIVED'::text, 'RESCHEDULED'::text, 'CANCELLED'::text, 'EXPIRED'::text, 'SUPPRESSED'::text, 'SENT'::text]))
    WHEN 'RELEASED'::text THEN (type = ANY (ARRAY['RECEIVED'::text, 'RESCHEDULED'::text, 'CANCELLED'::text, 'EXPIRED'::text, 'SUPPRESSED'::text, 'SENT'::text]))
    WHEN 'REPLAYED'::text THEN (type = ANY (ARRAY['RECEIVED'::text, 'RESCHEDULED'::text, 'CANCELLED'::text, 'EXPIRED'::text, 'SUPPRESSED'::text, 'SENT'::text]))
    WHEN 'FAILED'::text THEN (type = ANY (ARRAY['REPLAYED'::text, 'SENT'::text]))
    WHEN 'EXPIRED'::text THEN (type = ANY (ARRAY['REPLAYED'::text, 'SENT'::text]))
    WHEN 'CANCELLED'::text THEN (type = ANY (ARRAY['REPLAYED'::text, 'SENT'::text]))
    WHEN 'SUPPRESSED'::text THEN (type = 'SENT'::text)
    ELSE ((previous = ANY (ARRAY['SENT'::text, 'DELIVERED'::text, 'DELIVERY_DELAYED'::text, 'BOUNCED'::text, 'COMPLAINED'::text, 'REJECTED'::text, 'RENDERING_FAILED'::text, 'OPENED'::text, 'CLICKED'::text, 'SUBSCRIPTION_CHANGED'::text, 'DUPLICATE_CONFIRMED'::text])) AND (type = ANY (ARRAY['DELIVERED'::text, 'DELIVERY_DELAYED'::text, 'BOUNCED'::text, 'COMPLAINED'::text, 'REJECTED'::text, 'RENDERING_FAILED'::text, 'OPENED'::text, 'CLICKED'::text, 'SUBSCRIPTION_CHANGED'::text, 'DUPLICATE_CONFIRMED'::text])))
END),
    CONSTRAINT email_events_seq_check CHECK ((seq > 0))
)
PARTITION BY RANGE (email_log_id);

CREATE TABLE email_logs (
    outbox_id uuid NOT NULL,
    company_id uuid NOT NULL,
    recipient_id uuid,
    recipient text NOT NULL,
    subject text NOT NULL,
    status text NOT NULL,
    ses_message_id text,
    error_code text,
    error_reason text,
    attempts integer NOT NULL,
    throttles integer DEFAULT 0 NOT NULL,
    duration_ms integer,
    request_id text NOT NULL,
    external_id text,
    tags text[] DEFAULT '{}'::text[] NOT NULL,
    possible_duplicate boolean DEFAULT false NOT NULL,
    expires_at timestamp with time zone NOT NULL,
    created_at timestamp with time zone NOT NULL,
    sent_at timestamp with time zone,
    failed_at timestamp with time zone,
    event_seq integer NOT NULL,
    last_event text,
    send_at timestamp with time zone,
    template text,
    delivered_at timestamp with time zone,
    delivery_problem text,
    delivery_problem_at timestamp with time zone,
    delivery_problem_reason text,
    CONSTRAINT email_logs_delivery_problem CHECK (
CASE
    WHEN (delivery_problem IS NULL) THEN ((delivery_problem_at IS NULL) AND (delivery_problem_reason IS NULL))
    ELSE ((delivery_problem = ANY (ARRAY['delayed'::text, 'rejected'::text, 'bounced'::text, 'complained'::text])) AND (delivery_problem_at IS NOT NULL))
END),
    CONSTRAINT email_logs_failed_has_time CHECK (((status <> 'FAILED'::text) OR (failed_at IS NOT NULL))),
    CONSTRAINT email_logs_last_event CHECK (((event_seq = 0) = (last_event IS NULL))),
    CONSTRAINT email_logs_sent_has_time CHECK (((status <> 'SENT'::text) OR (sent_at IS NOT NULL))),
    CONSTRAINT email_logs_status_check CHECK ((status = ANY (ARRAY['PENDING'::text, 'ENQUEUED'::text, 'PROCESSING'::text, 'RETRY_SCHEDULED'::text, 'OUTCOME_UNKNOWN'::text, 'SENT'::text, 'FAILED'::text, 'EXPIRED'::text, 'CANCELLED'::text, 'SUPPRESSED'::text])))
)
PARTITION BY RANGE (outbox_id);

CREATE TABLE email_outbox (
    id uuid NOT NULL,
    company_id uuid NOT NULL,
    lane_id bigint,
    target text DEFAULT 'email:send'::text NOT NULL,
    request_id text NOT NULL,
    payload jsonb NOT NULL,
    sender text,
    html text,
    text_body text,
    cpf_cnpj_enc bytea,
    status text DEFAULT 'PENDING'::text NOT NULL,
    priority smallint DEFAULT 5 NOT NULL,
    attempts integer DEFAULT 0 NOT NULL,
    throttles integer DEFAULT 0 NOT NULL,
    last_error text,
    next_at timestamp with time zone DEFAULT now() NOT NULL,
    expires_at timestamp with time zone NOT NULL,
    enqueued_at timestamp with time zone,
    processed_at timestamp with time zone,
    created_at timestamp with time zone DEFAULT now() NOT NULL,
    claim_token uuid,
    lease_until timestamp with time zone,
    delivery text DEFAULT 'at_least_once'::text NOT NULL,
    outcome_unknown boolean DEFAULT false NOT NULL,
    possible_duplicate boolean DEFAULT false NOT NULL,
    html_sha256 bytea,
    checker_version smallint,
    body_erased_at timestamp with time zone,
    aggregate_type text,
    aggregate_id text,
    event_type text,
    template text,
    auto_text boolean DEFAULT true NOT NULL,
    attachments smallint,
    replaced_at timestamp with time zone,
    due_at timestamp with time zone,
    CONSTRAINT email_outbox_aggregate_is_whole CHECK ((num_nulls(aggregate_type, aggregate_id, event_type) = ANY (ARRAY[0, 3]))),
    CONSTRAINT email_outbox_counters CHECK (((attempts >= 0) AND ((throttles >= 0) AND (throttles <= attempts)))),
    CONSTRAINT email_outbox_delivery_check CHECK ((delivery = ANY (ARRAY['at_least_once'::text, 'at_most_once'::text]))),
    CONSTRAINT email_outbox_email_is_complete CHECK (((lane_id IS NOT NULL) AND ((target <> 'email:send'::text) OR ((sender IS NOT NULL) AND (((html IS NOT NULL) AND (html_sha256 IS NOT NULL) AND (checker_version IS NOT NULL)) OR starts_with(COALESCE((payload ->> 'htmlRef'::text), ''::text), 'mailing:'::text)))))),
    CONSTRAINT email_outbox_erased_is_final CHECK (((body_erased_at IS NULL) OR (processed_at IS NOT NULL))),
    CONSTRAINT email_outbox_final_has_time CHECK (((status = ANY (ARRAY['SENT'::text, 'FAILED'::text, 'EXPIRED'::text, 'CANCELLED'::text, 'SUPPRESSED'::text, 'PUBLISHED'::text])) = (processed_at IS NOT NULL))),
    CONSTRAINT email_outbox_priority_check CHECK (((priority >= 1) AND (priority <= 10))),
    CONSTRAINT email_outbox_processing_has_lease CHECK ((((status = 'PROCESSING'::text) = (lease_until IS NOT NULL)) AND ((status <> 'PROCESSING'::text) OR (claim_token IS NOT NULL)))),
    CONSTRAINT email_outbox_status CHECK (
CASE target
    WHEN 'email:send'::text THEN (status = ANY (ARRAY['PENDING'::text, 'ENQUEUED'::text, 'PROCESSING'::text, 'RETRY_SCHEDULED'::text, 'OUTCOME_UNKNOWN'::text, 'SENT'::text, 'FAILED'::text, 'EXPIRED'::text, 'CANCELLED'::text, 'SUPPRESSED'::text]))
    WHEN 'mailing.process'::text THEN (status = ANY (ARRAY['PENDING'::text, 'PUBLISHED'::text, 'FAILED'::text]))
    WHEN 'recipients.upsert'::text THEN (status = ANY (ARRAY['PENDING'::text, 'PUBLISHED'::text, 'FAILED'::text]))
    ELSE false
END)
)
WITH (fillfactor='70', autovacuum_vacuum_scale_factor='0.02', autovacuum_vacuum_cost_delay='0');
ALTER TABLE ONLY email_outbox ALTER COLUMN html SET COMPRESSION lz4;
ALTER TABLE ONLY email_outbox ALTER COLUMN text_body SET COMPRESSION lz4;

CREATE TABLE erased_tasks (
    outbox_id uuid NOT NULL,
    erasure_id uuid NOT NULL,
    company_id uuid NOT NULL,
    final boolean NOT NULL,
    asked_at timestamp with time zone DEFAULT now() NOT NULL,
    done_at timestamp with time zone,
    found boolean DEFAULT false NOT NULL,
    CONSTRAINT erased_tasks_found_is_done CHECK (((NOT found) OR (done_at IS NOT NULL)))
);

CREATE TABLE event_feed (
    id bigint NOT NULL,
    company_id uuid NOT NULL,
    "position" bigint,
    xid xid8 DEFAULT pg_current_xact_id() NOT NULL,
    email_ids uuid[] NOT NULL,
    first_seqs integer[] NOT NULL,
    last_seqs integer[] NOT NULL,
    created_at timestamp with time zone DEFAULT now() NOT NULL,
    sent integer,
    reported integer,
    CONSTRAINT event_feed_arrays CHECK (((cardinality(email_ids) > 0) AND (cardinality(email_ids) = cardinality(first_seqs)) AND (cardinality(email_ids) = cardinality(last_seqs)))),
    CONSTRAINT event_feed_position_check CHECK (("position" > 0))
)
WITH (fillfactor='60', autovacuum_vacuum_scale_factor='0.05', autovacuum_vacuum_cost_delay='0');

ALTER TABLE event_feed ALTER COLUMN id ADD GENERATED ALWAYS AS IDENTITY (
    SEQUENCE NAME event_feed_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);

CREATE TABLE event_positions (
    singleton boolean DEFAULT true NOT NULL,
    newest bigint DEFAULT 0 NOT NULL,
    deleted bigint DEFAULT 0 NOT NULL,
    from_xid xid8 DEFAULT '0'::xid8 NOT NULL,
    updated_at timestamp with time zone DEFAULT now() NOT NULL,
    history text,
    CONSTRAINT event_positions_check CHECK (((deleted >= 0) AND (deleted <= newest))),
    CONSTRAINT event_positions_singleton_check CHECK (singleton)
)
WITH (fillfactor='10');

CREATE TABLE idempotency_keys (
    company_id uuid NOT NULL,
    route text NOT NULL,
    key text NOT NULL,
    body_sha256 bytea NOT NULL,
    status smallint NOT NULL,
    answer bytea NOT NULL,
    outbox_id uuid NOT NULL,
    created_at timestamp with time zone DEFAULT now() NOT NULL,
    expires_at timestamp with time zone NOT NULL,
    CONSTRAINT idempotency_keys_body_sha256_check CHECK ((length(body_sha256) = 32)),
    CONSTRAINT idempotency_keys_key_check CHECK (((length(key) >= 1) AND (length(key) <= 255)))
);

CREATE TABLE installation (
    singleton boolean DEFAULT true NOT NULL,
    id uuid DEFAULT gen_random_uuid() NOT NULL,
    storage_marked_at timestamp with time zone,
    CONSTRAINT installation_singleton_check CHECK (singleton)
);

CREATE VIEW log_partitions AS
 SELECT (parent.relname)::text AS log,
    (part.relname)::text AS name,
    (NULLIF(bounds.bounds[1], 'MINVALUE'::text))::uuid AS first_id,
    (bounds.bounds[2])::uuid AS end_id
   FROM (((pg_inherits i
     JOIN pg_class parent ON ((parent.oid = i.inhparent)))
     JOIN pg_class part ON ((part.oid = i.inhrelid)))
     CROSS JOIN LATERAL regexp_match(pg_get_expr(part.relpartbound, part.oid), 'FROM \(''?([^'')]+)''?\) TO \(''?([^'')]+)''?\)'::text) bounds(bounds))
  WHERE ((i.inhparent = ANY (ARRAY[('email_logs'::regclass)::oid, ('email_events'::regclass)::oid])) AND (bounds.bounds IS NOT NULL));

CREATE TABLE mailing_entries (
    id uuid NOT NULL,
    mailing_id uuid NOT NULL,
    line_no integer NOT NULL,
    email text NOT NULL,
    token text NOT NULL,
    status text DEFAULT 'PENDING'::text NOT NULL,
    outcome_unknown boolean DEFAULT false NOT NULL,
    attempts integer DEFAULT 0 NOT NULL,
    last_attempt timestamp with time zone,
    external_id text,
    invalid_reason text,
    validation_details text,
    fields text[] DEFAULT '{}'::text[] NOT NULL,
    nome text,
    razao_social text,
    recipient_external_id text,
    cpf_cnpj_hash text,
    cpf_cnpj_enc bytea,
    recipient_id uuid,
    created_at timestamp with time zone DEFAULT now() NOT NULL,
    updated_at timestamp with time zone DEFAULT now() NOT NULL,
    empty_fields text[],
    CONSTRAINT mailing_entries_cpf_cnpj_hash_check CHECK ((cpf_cnpj_hash ~ '^[0-9a-f]{64}$'::text)),
    CONSTRAINT mailing_entries_email_check CHECK ((length(email) <= 255)),
    CONSTRAINT mailing_entries_invalid_has_reason CHECK (((status = 'INVALID'::text) = (invalid_reason IS NOT NULL))),
    CONSTRAINT mailing_entries_invalid_reason_check CHECK ((invalid_reason = ANY (ARRAY['syntax'::text, 'disposable'::text, 'mx'::text]))),
    CONSTRAINT mailing_entries_line_no_check CHECK ((line_no > 0)),
    CONSTRAINT mailing_entries_status_check CHECK ((status = ANY (ARRAY['PENDING'::text, 'INVALID'::text, 'QUEUED'::text, 'SENT'::text, 'FAILED'::text, 'EXPIRED'::text, 'CANCELLED'::text, 'SUPPRESSED'::text])))
)
WITH (autovacuum_vacuum_scale_factor='0.05', fillfactor='45');

CREATE TABLE mailing_feedback (
    mailing_id uuid NOT NULL,
    id bigint NOT NULL,
    delivered integer DEFAULT 0 NOT NULL,
    bounced integer DEFAULT 0 NOT NULL,
    complained integer DEFAULT 0 NOT NULL,
    unsubscribed integer DEFAULT 0 NOT NULL
);

ALTER TABLE mailing_feedback ALTER COLUMN id ADD GENERATED ALWAYS AS IDENTITY (
    SEQUENCE NAME mailing_feedback_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);

CREATE TABLE mailing_marks (
    mailing_id uuid NOT NULL,
    id bigint NOT NULL
);

ALTER TABLE mailing_marks ALTER COLUMN id ADD GENERATED ALWAYS AS IDENTITY (
    SEQUENCE NAME mailing_marks_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);

CREATE TABLE mailing_rejects (
    mailing_id uuid NOT NULL,
    line_no integer NOT NULL,
    column_name text,
    code text NOT NULL,
    last_line integer,
    CONSTRAINT mailing_rejects_line_no_check CHECK ((line_no > 0))
);

CREATE TABLE mailings (
    id uuid NOT NULL,
    company_id uuid NOT NULL,
    request_id text NOT NULL,
    filename text NOT NULL,
    storage_url text NOT NULL,
    file_sha256 bytea NOT NULL,
    request_sha256 bytea NOT NULL,
    answer bytea NOT NULL,
    dry_run boolean DEFAULT false NOT NULL,
    nothing_to_send boolean DEFAULT false NOT NULL,
    subject text NOT NULL,
    html text NOT NULL,
    text_body text,
    html_sha256 bytea NOT NULL,
    checker_version smallint NOT NULL,
    fields text[] NOT NULL,
    sender text NOT NULL,
    reply_to text,
    tags text[] DEFAULT '{}'::text[] NOT NULL,
    delivery text DEFAULT 'at_least_once'::text NOT NULL,
    send_at timestamp with time zone,
    status text NOT NULL,
    generation integer DEFAULT 1 NOT NULL,
    attempts integer DEFAULT 0 NOT NULL,
    last_attempt timestamp with time zone,
    error_message text,
    first_entry uuid,
    last_entry uuid,
    expanded_to uuid,
    expanded_at timestamp with time zone,
    settling text,
    settled_to uuid,
    total_lines integer NOT NULL,
    processed_lines integer DEFAULT 0 NOT NULL,
    accepted integer NOT NULL,
    invalid integer NOT NULL,
    duplicates integer NOT NULL,
    invalid_by_reason jsonb DEFAULT '{}'::jsonb NOT NULL,
    invalid_later integer DEFAULT 0 NOT NULL,
    queued integer DEFAULT 0 NOT NULL,
    sent integer DEFAULT 0 NOT NULL,
    failed integer DEFAULT 0 NOT NULL,
    suppressed integer DEFAULT 0 NOT NULL,
    expired integer DEFAULT 0 NOT NULL,
    cancelled integer DEFAULT 0 NOT NULL,
    unknown integer DEFAULT 0 NOT NULL,
    rate double precision DEFAULT 0 NOT NULL,
    counted_at timestamp with time zone,
    created_at timestamp with time zone DEFAULT now() NOT NULL,
    updated_at timestamp with time zone DEFAULT now() NOT NULL,
    completed_at timestamp with time zone,
    file_deleted_at timestamp with time zone,
    entries_deleted_at timestamp with time zone,
    empty_fields integer DEFAULT 0 NOT NULL,
    subject_written text,
    waiting_for text,
    waiting_until timestamp with time zone,
    file_bytes bigint,
    delivered integer DEFAULT 0 NOT NULL,
    bounced integer DEFAULT 0 NOT NULL,
    complained integer DEFAULT 0 NOT NULL,
    unsubscribed integer DEFAULT 0 NOT NULL,
    auto_text boolean DEFAULT true NOT NULL,
    attachments smallint,
    template text,
    template_variables text,
    email_column text,
    CONSTRAINT mailings_complete_when_all_ended CHECK (((status <> 'COMPLETED'::text) OR dry_run OR (accepted = ((((((sent + failed) + invalid_later) + suppressed) + cancelled) + expired) + unknown)))),
    CONSTRAINT mailings_delivery_check CHECK ((delivery = ANY (ARRAY['at_least_once'::text, 'at_most_once'::text]))),
    CONSTRAINT mailings_file_sha256_check CHECK ((length(file_sha256) = 32)),
    CONSTRAINT mailings_filename_check CHECK (((length(filename) >= 1) AND (length(filename) <= 255))),
    CONSTRAINT mailings_lines_add_up CHECK ((total_lines = ((accepted + invalid) + duplicates))),
    CONSTRAINT mailings_request_sha256_check CHECK ((length(request_sha256) = 32)),
    CONSTRAINT mailings_settling_check CHECK ((settling = ANY (ARRAY['cancel'::text, 'retry-failed'::text]))),
    CONSTRAINT mailings_status_check CHECK ((status = ANY (ARRAY['QUEUED'::text, 'PENDING'::text, 'PROCESSING'::text, 'SENDING'::text, 'PAUSED'::text, 'COMPLETED'::text, 'CANCELLED'::text, 'FAILED'::text])))
)
WITH (fillfactor='70');

CREATE TABLE operator_audit (
    id bigint NOT NULL,
    at timestamp with time zone DEFAULT now() NOT NULL,
    operator text NOT NULL,
    database_role text DEFAULT (SESSION_USER)::text NOT NULL,
    action text NOT NULL,
    company_id uuid,
    subject text,
    details jsonb DEFAULT '{}'::jsonb NOT NULL,
    reason text,
    CONSTRAINT operator_audit_action_check CHECK ((action ~ '^[a-z]+(-[a-z]+)*\.[a-z]+(-[a-z]+)*$'::text)),
    CONSTRAINT operator_audit_operator_check CHECK ((operator <> ''::text))
);

ALTER TABLE operator_audit ALTER COLUMN id ADD GENERATED ALWAYS AS IDENTITY (
    SEQUENCE NAME operator_audit_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);

CREATE TABLE outbox_aggregates (
    company_id uuid NOT NULL,
    aggregate_type text NOT NULL,
    aggregate_id text NOT NULL,
    event_type text NOT NULL,
    turn integer DEFAULT 1 NOT NULL,
    outbox_id uuid NOT NULL,
    CONSTRAINT outbox_aggregates_event CHECK (((event_type ~ '^[A-Za-z0-9][A-Za-z0-9._:=~-]*$'::text) AND (length(event_type) <= 64))),
    CONSTRAINT outbox_aggregates_id CHECK (((aggregate_id ~ '^[A-Za-z0-9][A-Za-z0-9._:=~-]*$'::text) AND (length(aggregate_id) <= 200))),
    CONSTRAINT outbox_aggregates_turn_check CHECK ((turn > 0)),
    CONSTRAINT outbox_aggregates_type CHECK (((aggregate_type ~ '^[A-Za-z0-9][A-Za-z0-9._:=~-]*$'::text) AND (length(aggregate_type) <= 64)))
);

CREATE TABLE outbox_programs (
    role_name text NOT NULL,
    company_id uuid NOT NULL,
    created_at timestamp with time zone DEFAULT now() NOT NULL,
    CONSTRAINT outbox_programs_role_name_check CHECK ((role_name <> ''::text))
);

CREATE TABLE owner_locks (
    name text NOT NULL,
    slot smallint DEFAULT 0 NOT NULL,
    CONSTRAINT owner_locks_name_check CHECK ((name = ANY (ARRAY['email_logs'::text, 'email_events'::text, 'settling'::text]))),
    CONSTRAINT owner_locks_slot_check CHECK (((slot >= 0) AND (slot <= 255)))
);

CREATE TABLE person_erasures (
    id uuid NOT NULL,
    company_id uuid NOT NULL,
    person jsonb NOT NULL,
    begun_at timestamp with time zone DEFAULT now() NOT NULL,
    receipt jsonb
);

CREATE TABLE process_status (
    service text NOT NULL,
    instance text NOT NULL,
    started_at timestamp with time zone NOT NULL,
    updated_at timestamp with time zone DEFAULT now() NOT NULL,
    details jsonb NOT NULL,
    CONSTRAINT process_status_service_check CHECK ((service = ANY (ARRAY['dispatcher'::text, 'worker'::text])))
);

CREATE TABLE provider_gate (
    id smallint DEFAULT 1 NOT NULL,
    state text DEFAULT 'open'::text NOT NULL,
    since timestamp with time zone DEFAULT now() NOT NULL,
    reason text,
    changed_by text,
    attempt_id uuid,
    shuts bigint DEFAULT 0 NOT NULL,
    probe_id uuid,
    probe_at timestamp with time zone,
    held_at timestamp with time zone,
    held_reason text,
    is_open boolean GENERATED ALWAYS AS ((state = 'shut'::text)) STORED NOT NULL,
    opener_company uuid,
    CONSTRAINT provider_gate_held_has_reason CHECK (((held_at IS NULL) = (held_reason IS NULL))),
    CONSTRAINT provider_gate_id_check CHECK ((id = 1)),
    CONSTRAINT provider_gate_shut_has_reason CHECK (((state = 'shut'::text) = (reason IS NOT NULL))),
    CONSTRAINT provider_gate_state_check CHECK ((state = ANY (ARRAY['open'::text, 'shut'::text])))
);

CREATE TABLE provider_refusals (
    key text NOT NULL,
    refused_at timestamp with time zone DEFAULT now() NOT NULL,
    disproved boolean DEFAULT false NOT NULL
);

CREATE TABLE quota_defaults (
    singleton boolean DEFAULT true NOT NULL,
    scheduled_emails bigint DEFAULT 100000 NOT NULL,
    emails_per_day bigint DEFAULT 1000000 NOT NULL,
    stored_body_bytes bigint DEFAULT '10737418240'::bigint NOT NULL,
    recipients bigint DEFAULT 10000000 NOT NULL,
    suppressions bigint DEFAULT 10000000 NOT NULL,
    stored_file_bytes bigint DEFAULT '10737418240'::bigint NOT NULL,
    running_mailings bigint DEFAULT 20 NOT NULL,
    mailing_rows_per_day bigint DEFAULT 10000000 NOT NULL,
    updated_at timestamp with time zone DEFAULT now() NOT NULL,
    CONSTRAINT quota_defaults_emails_per_day_check CHECK ((emails_per_day >= 0)),
    CONSTRAINT quota_defaults_mailing_rows_per_day_check CHECK ((mailing_rows_per_day >= 0)),
    CONSTRAINT quota_defaults_recipients_check CHECK ((recipients >= 0)),
    CONSTRAINT quota_defaults_running_mailings_check CHECK ((running_mailings >= 0)),
    CONSTRAINT quota_defaults_scheduled_emails_check CHECK ((scheduled_emails >= 0)),
    CONSTRAINT quota_defaults_singleton_check CHECK (singleton),
    CONSTRAINT quota_defaults_stored_body_bytes_check CHECK ((stored_body_bytes >= 0)),
    CONSTRAINT quota_defaults_stored_file_bytes_check CHECK ((stored_file_bytes >= 0)),
    CONSTRAINT quota_defaults_suppressions_check CHECK ((suppressions >= 0))
);

CREATE TABLE quota_deltas (
    company_id uuid NOT NULL,
    xid xid8 DEFAULT pg_current_xact_id() NOT NULL,
    id bigint NOT NULL,
    day date DEFAULT ((now() AT TIME ZONE 'UTC'::text))::date NOT NULL,
    emails bigint DEFAULT 0 NOT NULL,
    scheduled bigint DEFAULT 0 NOT NULL,
    body_bytes bigint DEFAULT 0 NOT NULL,
    recipients bigint DEFAULT 0 NOT NULL,
    suppressions bigint DEFAULT 0 NOT NULL,
    transaction_writes bigint,
    file_bytes bigint DEFAULT 0 NOT NULL
)
WITH (autovacuum_vacuum_scale_factor='0', autovacuum_vacuum_threshold='10000', autovacuum_vacuum_cost_delay='0');

ALTER TABLE quota_deltas ALTER COLUMN id ADD GENERATED ALWAYS AS IDENTITY (
    SEQUENCE NAME quota_deltas_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);

CREATE TABLE quota_totals (
    company_id uuid NOT NULL,
    folded_before xid8 DEFAULT '0'::xid8 NOT NULL,
    day date DEFAULT '-infinity'::date NOT NULL,
    emails bigint DEFAULT 0 NOT NULL,
    scheduled bigint DEFAULT 0 NOT NULL,
    scheduled_at timestamp with time zone,
    body_bytes bigint DEFAULT 0 NOT NULL,
    recipients bigint DEFAULT 0 NOT NULL,
    suppressions bigint DEFAULT 0 NOT NULL,
    folded pg_snapshot,
    file_bytes bigint DEFAULT 0 NOT NULL
)
WITH (fillfactor='50');

CREATE TABLE recipient_intakes (
    recipient_id uuid NOT NULL,
    outbox_id uuid NOT NULL,
    company_id uuid NOT NULL,
    email text NOT NULL,
    counted boolean DEFAULT false NOT NULL
);

CREATE TABLE recipients (
    id uuid NOT NULL,
    company_id uuid NOT NULL,
    external_id text,
    cpf_cnpj_hash text,
    cpf_cnpj_enc bytea,
    razao_social text,
    nome text,
    email text NOT NULL,
    created_at timestamp with time zone DEFAULT now() NOT NULL,
    updated_at timestamp with time zone DEFAULT now() NOT NULL,
    deleted_at timestamp with time zone,
    intake_id uuid,
    external_id_by uuid,
    cpf_cnpj_by uuid,
    cpf_cnpj_enc_by uuid,
    razao_social_by uuid,
    nome_by uuid,
    merged_by uuid,
    deletion_id uuid,
    CONSTRAINT recipients_cpf_cnpj_hash_check CHECK ((cpf_cnpj_hash ~ '^[0-9a-f]{64}$'::text))
);

CREATE TABLE reputation_defaults (
    rule text NOT NULL,
    warn_ppm integer NOT NULL,
    pause_ppm integer NOT NULL,
    min_sent integer NOT NULL,
    min_events integer NOT NULL,
    CONSTRAINT reputation_defaults_check CHECK (((pause_ppm >= warn_ppm) AND (pause_ppm <= 1000000))),
    CONSTRAINT reputation_defaults_min_events_check CHECK ((min_events > 0)),
    CONSTRAINT reputation_defaults_min_sent_check CHECK ((min_sent > 0)),
    CONSTRAINT reputation_defaults_rule_check CHECK ((rule = ANY (ARRAY['complaints_1h'::text, 'complaints_24h'::text, 'bounces_1h'::text, 'bounces_24h'::text]))),
    CONSTRAINT reputation_defaults_warn_ppm_check CHECK ((warn_ppm > 0))
);

CREATE TABLE reputation_feedback (
    outbox_id uuid NOT NULL,
    kind text NOT NULL,
    company_id uuid NOT NULL,
    sent_at timestamp with time zone NOT NULL,
    checked boolean DEFAULT false NOT NULL,
    CONSTRAINT reputation_feedback_kind_check CHECK ((kind = ANY (ARRAY['bounce'::text, 'complaint'::text])))
);

CREATE TABLE reputation_guard (
    singleton boolean DEFAULT true NOT NULL,
    enabled boolean DEFAULT true NOT NULL,
    counts_from timestamp with time zone DEFAULT now() NOT NULL,
    CONSTRAINT reputation_guard_singleton_check CHECK (singleton)
);

CREATE TABLE reputation_sends (
    company_id uuid NOT NULL,
    minute timestamp with time zone NOT NULL,
    sent integer NOT NULL
)
WITH (fillfactor='70');

CREATE TABLE retention_walks (
    kind text NOT NULL,
    company_id uuid NOT NULL,
    reached uuid DEFAULT '00000000-0000-0000-0000-000000000000'::uuid NOT NULL,
    begun_at timestamp with time zone DEFAULT now() NOT NULL,
    CONSTRAINT retention_walks_kind_check CHECK ((kind = ANY (ARRAY['outbox'::text, 'bodies'::text, 'logs'::text, 'events'::text, 'aggregates'::text, 'entryValues'::text, 'entryHashes'::text, 'outboxHashes'::text, 'recipientHashes'::text])))
)
WITH (fillfactor='50');

CREATE TABLE sender_domains (
    company_id uuid NOT NULL,
    domain text NOT NULL,
    created_at timestamp with time zone DEFAULT now() NOT NULL,
    CONSTRAINT sender_domains_domain_check CHECK ((domain = lower(domain)))
);

CREATE TABLE ses_events (
    sns_message_id text NOT NULL,
    kind text NOT NULL,
    ses_message_id text,
    outbox_id uuid,
    attempt_id uuid,
    payload jsonb DEFAULT '{}'::jsonb NOT NULL,
    occurred_at timestamp with time zone,
    received_at timestamp with time zone DEFAULT now() NOT NULL,
    applied_at timestamp with time zone,
    CONSTRAINT ses_events_kind_check CHECK (((length(kind) >= 1) AND (length(kind) <= 100))),
    CONSTRAINT ses_events_sns_message_id_check CHECK (((length(sns_message_id) >= 1) AND (length(sns_message_id) <= 100)))
);

CREATE TABLE stored_files (
    id uuid NOT NULL,
    company_id uuid NOT NULL,
    sha256 bytea NOT NULL,
    size bigint NOT NULL,
    bytes bigint NOT NULL,
    media_type text NOT NULL,
    created_at timestamp with time zone DEFAULT now() NOT NULL,
    used_at timestamp with time zone DEFAULT now() NOT NULL,
    missing_since timestamp with time zone,
    CONSTRAINT stored_files_check CHECK ((bytes >= size)),
    CONSTRAINT stored_files_sha256_check CHECK ((length(sha256) = 32)),
    CONSTRAINT stored_files_size_check CHECK ((size > 0))
);

CREATE TABLE suppressions (
    company_id uuid NOT NULL,
    address text NOT NULL,
    reason text NOT NULL,
    mailing_id uuid,
    note text,
    created_at timestamp with time zone DEFAULT now() NOT NULL,
    CONSTRAINT suppressions_address_check CHECK (((address = lower(address)) AND (address <> ''::text))),
    CONSTRAINT suppressions_reason_check CHECK ((reason = ANY (ARRAY['UNSUBSCRIBE'::text, 'BOUNCE'::text, 'COMPLAINT'::text, 'MANUAL'::text])))
);

CREATE TABLE template_events (
    id bigint NOT NULL,
    company_id uuid NOT NULL,
    name text NOT NULL,
    locale text NOT NULL,
    version integer,
    action text NOT NULL,
    actor text NOT NULL,
    at timestamp with time zone DEFAULT now() NOT NULL,
    CONSTRAINT template_events_action_check CHECK ((action = ANY (ARRAY['CREATED'::text, 'PUBLISHED'::text, 'DELETED'::text])))
);

ALTER TABLE template_events ALTER COLUMN id ADD GENERATED ALWAYS AS IDENTITY (
    SEQUENCE NAME template_events_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);

CREATE TABLE template_totals (
    company_id uuid NOT NULL,
    versions bigint NOT NULL,
    bytes bigint NOT NULL
);

CREATE TABLE template_versions (
    company_id uuid NOT NULL,
    name text NOT NULL,
    locale text NOT NULL,
    version integer NOT NULL,
    subject text NOT NULL,
    html text NOT NULL,
    text_body text NOT NULL,
    variables text NOT NULL,
    sha256 bytea NOT NULL,
    created_by text NOT NULL,
    created_at timestamp with time zone DEFAULT now() NOT NULL,
    CONSTRAINT template_versions_sha256_check CHECK ((length(sha256) = 32))
);

CREATE TABLE templates (
    company_id uuid NOT NULL,
    name text NOT NULL,
    locale text NOT NULL,
    latest integer NOT NULL,
    published integer,
    deleted_at timestamp with time zone,
    updated_at timestamp with time zone DEFAULT now() NOT NULL,
    CONSTRAINT templates_latest_check CHECK ((latest > 0)),
    CONSTRAINT templates_locale_check CHECK ((length(locale) <= 16)),
    CONSTRAINT templates_name_check CHECK ((name ~ '^[a-z0-9][a-z0-9._-]{0,63}$'::text))
);

CREATE TABLE usage_companies (
    company_id uuid NOT NULL,
    "position" bigint DEFAULT 0 NOT NULL,
    counted_from timestamp with time zone DEFAULT now() NOT NULL
)
WITH (fillfactor='50');

CREATE TABLE usage_days (
    company_id uuid NOT NULL,
    day date NOT NULL,
    accepted bigint DEFAULT 0 NOT NULL,
    sent bigint DEFAULT 0 NOT NULL,
    delivered bigint DEFAULT 0 NOT NULL,
    bounced bigint DEFAULT 0 NOT NULL,
    complained bigint DEFAULT 0 NOT NULL,
    body_bytes bigint DEFAULT 0 NOT NULL
)
WITH (fillfactor='50');

CREATE TABLE webhook_deliveries (
    id uuid NOT NULL,
    endpoint_id uuid NOT NULL,
    company_id uuid NOT NULL,
    event_id text NOT NULL,
    type text NOT NULL,
    "position" bigint NOT NULL,
    email_id uuid,
    status text NOT NULL,
    attempts integer DEFAULT 0 NOT NULL,
    next_at timestamp with time zone,
    last_attempt_at timestamp with time zone,
    last_status integer,
    last_error text,
    last_took_ms integer,
    created_at timestamp with time zone DEFAULT now() NOT NULL,
    updated_at timestamp with time zone DEFAULT now() NOT NULL,
    scheduled_at timestamp with time zone,
    CONSTRAINT webhook_deliveries_due CHECK (((status = 'RETRYING'::text) = (next_at IS NOT NULL))),
    CONSTRAINT webhook_deliveries_event_id_check CHECK (((length(event_id) >= 1) AND (length(event_id) <= 100))),
    CONSTRAINT webhook_deliveries_status_check CHECK ((status = ANY (ARRAY['RETRYING'::text, 'WAITING'::text, 'DELIVERED'::text, 'FAILED'::text])))
);

CREATE TABLE webhook_endpoints (
    id uuid NOT NULL,
    company_id uuid NOT NULL,
    slot smallint NOT NULL,
    url text NOT NULL,
    description text,
    types text[] DEFAULT '{}'::text[] NOT NULL,
    status text DEFAULT 'ENABLED'::text NOT NULL,
    disabled_reason text,
    disabled_at timestamp with time zone,
    secret_enc bytea NOT NULL,
    old_secret_enc bytea,
    old_secret_until timestamp with time zone,
    feed_position bigint NOT NULL,
    feed_number bigint DEFAULT '4611686018427387904'::bigint NOT NULL,
    failures integer DEFAULT 0 NOT NULL,
    failing_since timestamp with time zone,
    last_success_at timestamp with time zone,
    last_failure_at timestamp with time zone,
    last_error text,
    not_before timestamp with time zone,
    due_at timestamp with time zone,
    open_deliveries integer DEFAULT 0 NOT NULL,
    lease_token uuid,
    lease_until timestamp with time zone,
    created_at timestamp with time zone DEFAULT now() NOT NULL,
    updated_at timestamp with time zone DEFAULT now() NOT NULL,
    CONSTRAINT webhook_endpoints_disabled CHECK ((((status = 'DISABLED'::text) = (disabled_reason IS NOT NULL)) AND ((status = 'DISABLED'::text) = (disabled_at IS NOT NULL)))),
    CONSTRAINT webhook_endpoints_disabled_reason_check CHECK ((disabled_reason = ANY (ARRAY['REQUESTED'::text, 'OPERATOR'::text, 'GONE'::text, 'FAILING'::text]))),
    CONSTRAINT webhook_endpoints_failing CHECK (((failures > 0) = (failing_since IS NOT NULL))),
    CONSTRAINT webhook_endpoints_lease CHECK (((lease_token IS NULL) = (lease_until IS NULL))),
    CONSTRAINT webhook_endpoints_old_secret CHECK (((old_secret_enc IS NULL) = (old_secret_until IS NULL))),
    CONSTRAINT webhook_endpoints_slot_check CHECK (((slot >= 1) AND (slot <= 20))),
    CONSTRAINT webhook_endpoints_status_check CHECK ((status = ANY (ARRAY['ENABLED'::text, 'DISABLED'::text]))),
    CONSTRAINT webhook_endpoints_url_check CHECK (((length(url) >= 1) AND (length(url) <= 2048)))
);

CREATE TABLE webhook_replays (
    id uuid NOT NULL,
    endpoint_id uuid NOT NULL,
    company_id uuid NOT NULL,
    since timestamp with time zone,
    until timestamp with time zone,
    feed_position bigint DEFAULT 0 NOT NULL,
    feed_number bigint DEFAULT '4611686018427387904'::bigint NOT NULL,
    last_position bigint DEFAULT 0 NOT NULL,
    status text DEFAULT 'RUNNING'::text NOT NULL,
    done integer DEFAULT 0 NOT NULL,
    created_at timestamp with time zone DEFAULT now() NOT NULL,
    finished_at timestamp with time zone,
    CONSTRAINT webhook_replays_finished CHECK (((status = 'COMPLETED'::text) = (finished_at IS NOT NULL))),
    CONSTRAINT webhook_replays_range CHECK (((since IS NULL) = (until IS NULL))),
    CONSTRAINT webhook_replays_status_check CHECK ((status = ANY (ARRAY['RUNNING'::text, 'COMPLETED'::text])))
);

ALTER TABLE ONLY api_keys
    ADD CONSTRAINT api_keys_pkey PRIMARY KEY (key_id);

ALTER TABLE ONLY attachments
    ADD CONSTRAINT attachments_pkey PRIMARY KEY (owner_id, "position");

ALTER TABLE ONLY companies
    ADD CONSTRAINT companies_name_key UNIQUE (name);

ALTER TABLE ONLY companies
    ADD CONSTRAINT companies_pkey PRIMARY KEY (id);

ALTER TABLE ONLY company_events
    ADD CONSTRAINT company_events_pkey PRIMARY KEY (id);

ALTER TABLE ONLY company_quotas
    ADD CONSTRAINT company_quotas_pkey PRIMARY KEY (company_id);

ALTER TABLE ONLY company_reputation
    ADD CONSTRAINT company_reputation_pkey PRIMARY KEY (company_id);

ALTER TABLE ONLY company_reputation_rules
    ADD CONSTRAINT company_reputation_rules_pkey PRIMARY KEY (company_id, rule);

ALTER TABLE ONLY company_retention
    ADD CONSTRAINT company_retention_pkey PRIMARY KEY (company_id);

ALTER TABLE ONLY dead_letter_replays
    ADD CONSTRAINT dead_letter_replays_pkey PRIMARY KEY (id);

ALTER TABLE ONLY dead_letters
    ADD CONSTRAINT dead_letters_pkey PRIMARY KEY (id);

ALTER TABLE ONLY dispatch_batches
    ADD CONSTRAINT dispatch_batches_pkey PRIMARY KEY (taken_at, slot);

ALTER TABLE ONLY dispatch_lanes
    ADD CONSTRAINT dispatch_lanes_company_id_queue_mailing_id_key UNIQUE NULLS NOT DISTINCT (company_id, queue, mailing_id);

ALTER TABLE ONLY dispatch_lanes
    ADD CONSTRAINT dispatch_lanes_pkey PRIMARY KEY (id);

ALTER TABLE ONLY dropped_tasks
    ADD CONSTRAINT dropped_tasks_pkey PRIMARY KEY (enqueued_at, outbox_id);

ALTER TABLE ONLY email_events
    ADD CONSTRAINT email_events_pkey PRIMARY KEY (email_log_id, seq);

ALTER TABLE ONLY email_logs
    ADD CONSTRAINT email_logs_pkey PRIMARY KEY (outbox_id);

ALTER TABLE ONLY email_outbox
    ADD CONSTRAINT email_outbox_pkey PRIMARY KEY (id);

ALTER TABLE ONLY erased_tasks
    ADD CONSTRAINT erased_tasks_pkey PRIMARY KEY (outbox_id);

ALTER TABLE ONLY event_feed
    ADD CONSTRAINT event_feed_pkey PRIMARY KEY (id);

ALTER TABLE ONLY event_positions
    ADD CONSTRAINT event_positions_pkey PRIMARY KEY (singleton);

ALTER TABLE ONLY idempotency_keys
    ADD CONSTRAINT idempotency_keys_pkey PRIMARY KEY (company_id, route, key);

ALTER TABLE ONLY installation
    ADD CONSTRAINT installation_pkey PRIMARY KEY (singleton);

ALTER TABLE ONLY mailing_entries
    ADD CONSTRAINT mailing_entries_pkey PRIMARY KEY (id);

ALTER TABLE ONLY mailing_feedback
    ADD CONSTRAINT mailing_feedback_pkey PRIMARY KEY (mailing_id, id);

ALTER TABLE ONLY mailing_marks
    ADD CONSTRAINT mailing_marks_pkey PRIMARY KEY (mailing_id, id);

ALTER TABLE ONLY mailing_rejects
    ADD CONSTRAINT mailing_rejects_pkey PRIMARY KEY (mailing_id, line_no);

ALTER TABLE ONLY mailings
    ADD CONSTRAINT mailings_pkey PRIMARY KEY (id);

ALTER TABLE ONLY operator_audit
    ADD CONSTRAINT operator_audit_pkey PRIMARY KEY (id);

ALTER TABLE ONLY outbox_aggregates
    ADD CONSTRAINT outbox_aggregates_pkey PRIMARY KEY (company_id, aggregate_type, aggregate_id, event_type, turn);

ALTER TABLE ONLY outbox_programs
    ADD CONSTRAINT outbox_programs_pkey PRIMARY KEY (role_name, company_id);

ALTER TABLE ONLY owner_locks
    ADD CONSTRAINT owner_locks_pkey PRIMARY KEY (name, slot);

ALTER TABLE ONLY person_erasures
    ADD CONSTRAINT person_erasures_pkey PRIMARY KEY (id);

ALTER TABLE ONLY process_status
    ADD CONSTRAINT process_status_pkey PRIMARY KEY (service, instance);

ALTER TABLE ONLY provider_gate
    ADD CONSTRAINT provider_gate_pkey PRIMARY KEY (id);

ALTER TABLE ONLY provider_refusals
    ADD CONSTRAINT provider_refusals_pkey PRIMARY KEY (key);

ALTER TABLE ONLY quota_defaults
    ADD CONSTRAINT quota_defaults_pkey PRIMARY KEY (singleton);

ALTER TABLE ONLY quota_deltas
    ADD CONSTRAINT quota_deltas_pkey PRIMARY KEY (company_id, xid, id);

ALTER TABLE ONLY quota_totals
    ADD CONSTRAINT quota_totals_pkey PRIMARY KEY (company_id);

ALTER TABLE ONLY recipient_intakes
    ADD CONSTRAINT recipient_intakes_pkey PRIMARY KEY (recipient_id, outbox_id);

ALTER TABLE ONLY recipients
    ADD CONSTRAINT recipients_pkey PRIMARY KEY (id);

ALTER TABLE ONLY reputation_defaults
    ADD CONSTRAINT reputation_defaults_pkey PRIMARY KEY (rule);

ALTER TABLE ONLY reputation_feedback
    ADD CONSTRAINT reputation_feedback_pkey PRIMARY KEY (outbox_id, kind);

ALTER TABLE ONLY reputation_guard
    ADD CONSTRAINT reputation_guard_pkey PRIMARY KEY (singleton);

ALTER TABLE ONLY reputation_sends
    ADD CONSTRAINT reputation_sends_pkey PRIMARY KEY (company_id, minute);

ALTER TABLE ONLY retention_walks
    ADD CONSTRAINT retention_walks_pkey PRIMARY KEY (kind, company_id);

ALTER TABLE ONLY sender_domains
    ADD CONSTRAINT sender_domains_pkey PRIMARY KEY (company_id, domain);

ALTER TABLE ONLY ses_events
    ADD CONSTRAINT ses_events_pkey PRIMARY KEY (sns_message_id);

ALTER TABLE ONLY stored_files
    ADD CONSTRAINT stored_files_company_id_id_key UNIQUE (company_id, id);

ALTER TABLE ONLY stored_files
    ADD CONSTRAINT stored_files_company_id_sha256_key UNIQUE (company_id, sha256);

ALTER TABLE ONLY stored_files
    ADD CONSTRAINT stored_files_pkey PRIMARY KEY (id);

ALTER TABLE ONLY suppressions
    ADD CONSTRAINT suppressions_pkey PRIMARY KEY (company_id, address, reason);

ALTER TABLE ONLY template_events
    ADD CONSTRAINT template_events_pkey PRIMARY KEY (id);

ALTER TABLE ONLY template_totals
    ADD CONSTRAINT template_totals_pkey PRIMARY KEY (company_id);

ALTER TABLE ONLY template_versions
    ADD CONSTRAINT template_versions_pkey PRIMARY KEY (company_id, name, locale, version);

ALTER TABLE ONLY templates
    ADD CONSTRAINT templates_pkey PRIMARY KEY (company_id, name, locale);

ALTER TABLE ONLY usage_companies
    ADD CONSTRAINT usage_companies_pkey PRIMARY KEY (company_id);

ALTER TABLE ONLY usage_days
    ADD CONSTRAINT usage_days_pkey PRIMARY KEY (company_id, day);

ALTER TABLE ONLY webhook_deliveries
    ADD CONSTRAINT webhook_deliveries_event UNIQUE (endpoint_id, event_id);

ALTER TABLE ONLY webhook_deliveries
    ADD CONSTRAINT webhook_deliveries_pkey PRIMARY KEY (id);

ALTER TABLE ONLY webhook_endpoints
    ADD CONSTRAINT webhook_endpoints_pkey PRIMARY KEY (id);

ALTER TABLE ONLY webhook_endpoints
    ADD CONSTRAINT webhook_endpoints_slot UNIQUE (company_id, slot);

ALTER TABLE ONLY webhook_replays
    ADD CONSTRAINT webhook_replays_pkey PRIMARY KEY (id);

CREATE INDEX attachments_file ON attachments USING btree (company_id, file_id);

CREATE INDEX companies_paused ON companies USING btree (mailings_paused_at) WHERE (mailings_paused_at IS NOT NULL);

CREATE INDEX company_events_age ON company_events USING btree (created_at);

CREATE INDEX company_reputation_counted ON company_reputation USING btree (checked_at) WHERE (feed_position IS NOT NULL);

CREATE INDEX company_reputation_due ON company_reputation USING btree (check_at) WHERE (check_at IS NOT NULL);

CREATE INDEX dead_letter_replays_open ON dead_letter_replays USING btree (id) WHERE (status = 'RUNNING'::text);

CREATE INDEX dead_letters_age ON dead_letters USING btree (created_at);

CREATE INDEX dead_letters_company ON dead_letters USING btree (company_id, created_at, id);

CREATE INDEX dead_letters_mailing ON dead_letters USING btree (mailing_id) WHERE (mailing_id IS NOT NULL);

CREATE INDEX dead_letters_of_emails ON dead_letters USING btree (created_at) WHERE (target <> ALL (ARRAY['mailing.process'::text, 'recipients.upsert'::text]));

CREATE INDEX dead_letters_open ON dead_letters USING btree (outbox_id) WHERE (resolved_at IS NULL);

CREATE INDEX dead_letters_person ON dead_letters USING btree (company_id, id);

CREATE INDEX email_logs_company ON ONLY email_logs USING btree (company_id, outbox_id);

CREATE INDEX email_logs_external ON ONLY email_logs USING btree (company_id, external_id, outbox_id) WHERE (external_id IS NOT NULL);

CREATE INDEX email_logs_problem ON ONLY email_logs USING btree (company_id, delivery_problem, outbox_id) WHERE (delivery_problem IS NOT NULL);

CREATE INDEX email_logs_recipient ON ONLY email_logs USING btree (company_id, lower(recipient), outbox_id);

CREATE INDEX email_logs_request ON ONLY email_logs USING btree (company_id, request_id, outbox_id);

CREATE INDEX email_logs_tag1 ON ONLY email_logs USING btree (company_id, (tags[1]), outbox_id) WHERE (tags[1] IS NOT NULL);

CREATE INDEX email_logs_tag2 ON ONLY email_logs USING btree (company_id, (tags[2]), outbox_id) WHERE (tags[2] IS NOT NULL);

CREATE INDEX email_logs_tag3 ON ONLY email_logs USING btree (company_id, (tags[3]), outbox_id) WHERE (tags[3] IS NOT NULL);

CREATE INDEX email_logs_tag4 ON ONLY email_logs USING btree (company_id, (tags[4]), outbox_id) WHERE (tags[4] IS NOT NULL);

CREATE INDEX email_logs_tag5 ON ONLY email_logs USING btree (company_id, (tags[5]), outbox_id) WHERE (tags[5] IS NOT NULL);

CREATE INDEX email_outbox_emails ON email_outbox USING btree (company_id, id) WHERE (target = 'email:send'::text);

CREATE INDEX email_outbox_jobs ON email_outbox USING btree (company_id, id) WHERE (target <> 'email:send'::text);

CREATE INDEX email_outbox_lane_claim ON email_outbox USING btree (lane_id, next_at, id) WHERE (status = ANY (ARRAY['PENDING'::text, 'RETRY_SCHEDULED'::text]));

CREATE INDEX email_outbox_open ON email_outbox USING btree (status, expires_at) WHERE ((status = ANY (ARRAY['PENDING'::text, 'ENQUEUED'::text, 'PROCESSING'::text, 'RETRY_SCHEDULED'::text, 'OUTCOME_UNKNOWN'::text])) AND (target = 'email:send'::text));

CREATE INDEX erased_tasks_erasure ON erased_tasks USING btree (erasure_id);

CREATE INDEX erased_tasks_open ON erased_tasks USING btree (outbox_id) WHERE (done_at IS NULL);

CREATE UNIQUE INDEX event_feed_position ON event_feed USING btree (company_id, "position") WHERE ("position" IS NOT NULL);

CREATE INDEX event_feed_waiting ON event_feed USING btree (xid) WHERE ("position" IS NULL);

CREATE INDEX idempotency_keys_expiry ON idempotency_keys USING btree (expires_at);

CREATE UNIQUE INDEX mailing_entries_address ON mailing_entries USING btree (mailing_id, lower(email));

CREATE INDEX mailings_company ON mailings USING btree (company_id, id);

CREATE INDEX mailings_failed ON mailings USING btree (id) WHERE ((status = 'FAILED'::text) AND (entries_deleted_at IS NULL));

CREATE UNIQUE INDEX mailings_filename ON mailings USING btree (company_id, filename) WHERE ((NOT dry_run) AND (NOT nothing_to_send) AND (status <> ALL (ARRAY['CANCELLED'::text, 'FAILED'::text])));

CREATE INDEX mailings_files ON mailings USING btree (COALESCE(completed_at, updated_at)) WHERE ((file_deleted_at IS NULL) AND (status = ANY (ARRAY['COMPLETED'::text, 'CANCELLED'::text, 'FAILED'::text])));

CREATE INDEX mailings_kept ON mailings USING btree (COALESCE(completed_at, updated_at)) WHERE (((entries_deleted_at IS NULL) OR (first_entry IS NOT NULL)) AND (status = ANY (ARRAY['COMPLETED'::text, 'CANCELLED'::text, 'FAILED'::text])));

CREATE INDEX mailings_open ON mailings USING btree (id) WHERE ((status = ANY (ARRAY['QUEUED'::text, 'PENDING'::text, 'PROCESSING'::text, 'SENDING'::text, 'PAUSED'::text])) OR (settling IS NOT NULL) OR (counted_at IS NULL));

CREATE INDEX mailings_running ON mailings USING btree (company_id) WHERE (status = ANY (ARRAY['QUEUED'::text, 'PENDING'::text, 'PROCESSING'::text, 'SENDING'::text]));

CREATE INDEX mailings_stored ON mailings USING btree (company_id) INCLUDE (file_bytes) WHERE ((file_deleted_at IS NULL) AND (file_bytes > 0));

CREATE INDEX mailings_templates_kept ON mailings USING btree (COALESCE(completed_at, updated_at)) WHERE (((html <> ''::text) OR (text_body IS NOT NULL)) AND (status = ANY (ARRAY['COMPLETED'::text, 'CANCELLED'::text, 'FAILED'::text])));

CREATE INDEX operator_audit_age ON operator_audit USING btree (at, id);

CREATE UNIQUE INDEX outbox_aggregates_outbox ON outbox_aggregates USING btree (outbox_id);

CREATE INDEX recipients_company ON recipients USING btree (company_id, id);

CREATE INDEX recipients_deleted ON recipients USING btree (deleted_at) WHERE (deleted_at IS NOT NULL);

CREATE INDEX reputation_feedback_age ON reputation_feedback USING btree (sent_at);

CREATE INDEX reputation_feedback_company ON reputation_feedback USING btree (company_id, sent_at, kind);

CREATE INDEX reputation_feedback_unchecked ON reputation_feedback USING btree (company_id) WHERE (NOT checked);

CREATE INDEX ses_events_age ON ses_events USING btree (received_at);

CREATE INDEX ses_events_outbox ON ses_events USING btree (outbox_id) WHERE (outbox_id IS NOT NULL);

CREATE INDEX stored_files_used ON stored_files USING btree (used_at);

CREATE INDEX suppressions_created ON suppressions USING btree (company_id, created_at, address, reason);

CREATE INDEX template_events_template ON template_events USING btree (company_id, name, id);

CREATE INDEX webhook_deliveries_failed ON webhook_deliveries USING btree (endpoint_id, "position", id) WHERE (status = 'FAILED'::text);

CREATE INDEX webhook_deliveries_list ON webhook_deliveries USING btree (endpoint_id, id);

CREATE INDEX webhook_deliveries_open ON webhook_deliveries USING btree (endpoint_id, email_id, "position") WHERE (status = ANY (ARRAY['RETRYING'::text, 'WAITING'::text]));

CREATE INDEX webhook_deliveries_retrying ON webhook_deliveries USING btree (endpoint_id, next_at, id) WHERE (status = 'RETRYING'::text);

CREATE INDEX webhook_deliveries_status ON webhook_deliveries USING btree (endpoint_id, status, id);

CREATE INDEX webhook_deliveries_tests ON webhook_deliveries USING btree (endpoint_id, id) WHERE ("position" = 0);

CREATE INDEX webhook_endpoints_due ON webhook_endpoints USING btree (due_at) WHERE ((status = 'ENABLED'::text) AND (due_at IS NOT NULL));

CREATE INDEX webhook_replays_running ON webhook_replays USING btree (endpoint_id, id) WHERE (status = 'RUNNING'::text);

CREATE TRIGGER companies_add_quota_total AFTER INSERT ON companies FOR EACH ROW EXECUTE FUNCTION email_gateway_add_quota_total();

CREATE TRIGGER company_events_feed AFTER INSERT ON company_events FOR EACH ROW EXECUTE FUNCTION email_gateway_feed_company_event();

CREATE TRIGGER email_events_feed AFTER INSERT ON email_events REFERENCING NEW TABLE AS added FOR EACH STATEMENT EXECUTE FUNCTION email_gateway_feed_events();

CREATE TRIGGER email_outbox_count_added AFTER INSERT ON email_outbox REFERENCING NEW TABLE AS added FOR EACH STATEMENT EXECUTE FUNCTION email_gateway_count_added_emails();

CREATE TRIGGER email_outbox_count_changed AFTER UPDATE OF html, text_body ON email_outbox FOR EACH ROW WHEN (((octet_length(old.html) IS DISTINCT FROM octet_length(new.html)) OR (octet_length(old.text_body) IS DISTINCT FROM octet_length(new.text_body)))) EXECUTE FUNCTION email_gateway_count_changed_email();

CREATE TRIGGER email_outbox_count_gone AFTER DELETE ON email_outbox REFERENCING OLD TABLE AS gone FOR EACH STATEMENT EXECUTE FUNCTION email_gateway_count_gone_emails();

CREATE TRIGGER email_outbox_drop_attachments AFTER DELETE ON email_outbox FOR EACH ROW WHEN ((old.attachments IS NOT NULL)) EXECUTE FUNCTION email_gateway_drop_attachments();

CREATE TRIGGER email_outbox_erase_attachments AFTER UPDATE OF body_erased_at ON email_outbox FOR EACH ROW WHEN (((old.attachments IS NOT NULL) AND (new.body_erased_at IS NOT NULL))) EXECUTE FUNCTION email_gateway_drop_attachments();

CREATE TRIGGER email_outbox_keep_template AFTER DELETE ON email_outbox FOR EACH ROW WHEN ((old.template IS NOT NULL)) EXECUTE FUNCTION email_gateway_keep_template();

CREATE TRIGGER mailings_count_added AFTER INSERT OR DELETE ON mailings FOR EACH ROW EXECUTE FUNCTION email_gateway_count_templates();

CREATE TRIGGER mailings_count_changed AFTER UPDATE OF html, text_body ON mailings FOR EACH ROW WHEN (((octet_length(old.html) IS DISTINCT FROM octet_length(new.html)) OR (octet_length(old.text_body) IS DISTINCT FROM octet_length(new.text_body)))) EXECUTE FUNCTION email_gateway_count_templates();

CREATE TRIGGER mailings_drop_attachments AFTER DELETE ON mailings FOR EACH ROW WHEN ((old.attachments IS NOT NULL)) EXECUTE FUNCTION email_gateway_drop_attachments();

CREATE TRIGGER mailings_erase_attachments AFTER UPDATE OF html, text_body ON mailings FOR EACH ROW WHEN (((old.attachments IS NOT NULL) AND ((old.html <> ''::text) OR (old.text_body IS NOT NULL)) AND (new.html = ''::text) AND (new.text_body IS NULL))) EXECUTE FUNCTION email_gateway_drop_attachments();

CREATE TRIGGER quota_deltas_files AFTER DELETE ON quota_deltas REFERENCING OLD TABLE AS folded FOR EACH STATEMENT EXECUTE FUNCTION email_gateway_fold_files();

CREATE TRIGGER quota_deltas_usage AFTER DELETE ON quota_deltas REFERENCING OLD TABLE AS folded FOR EACH STATEMENT EXECUTE FUNCTION email_gateway_count_usage();

CREATE TRIGGER recipient_intakes_count_added AFTER INSERT ON recipient_intakes REFERENCING NEW TABLE AS added FOR EACH STATEMENT EXECUTE FUNCTION email_gateway_count_added_intakes();

CREATE TRIGGER recipient_intakes_count_gone AFTER DELETE ON recipient_intakes REFERENCING OLD TABLE AS gone FOR EACH STATEMENT EXECUTE FUNCTION email_gateway_count_gone_intakes();

CREATE TRIGGER recipient_intakes_mark BEFORE INSERT ON recipient_intakes FOR EACH ROW EXECUTE FUNCTION email_gateway_mark_intake();

CREATE TRIGGER recipients_count_added AFTER INSERT ON recipients REFERENCING NEW TABLE AS added FOR EACH STATEMENT EXECUTE FUNCTION email_gateway_count_added_recipients();

CREATE TRIGGER recipients_count_changed AFTER UPDATE OF deleted_at ON recipients FOR EACH ROW WHEN (((old.deleted_at IS NULL) <> (new.deleted_at IS NULL))) EXECUTE FUNCTION email_gateway_count_changed_recipient();

CREATE TRIGGER recipients_count_gone AFTER DELETE ON recipients REFERENCING OLD TABLE AS gone FOR EACH STATEMENT EXECUTE FUNCTION email_gateway_count_gone_recipients();

CREATE TRIGGER ses_events_delivery AFTER UPDATE OF applied_at ON ses_events FOR EACH ROW WHEN (((old.applied_at IS NULL) AND (new.applied_at IS NOT NULL) AND (new.kind = ANY (ARRAY['Delivery'::text, 'DeliveryDelay'::text, 'Bounce'::text, 'Complaint'::text, 'Reject'::text, 'Rendering Failure'::text])))) EXECUTE FUNCTION email_gateway_record_delivery();

CREATE TRIGGER ses_events_reputation AFTER UPDATE OF applied_at ON ses_events FOR EACH ROW WHEN (((old.applied_at IS NULL) AND (new.applied_at IS NOT NULL) AND (new.kind = ANY (ARRAY['Bounce'::text, 'Complaint'::text])))) EXECUTE FUNCTION email_gateway_record_reputation();

CREATE TRIGGER stored_files_count_added AFTER INSERT ON stored_files REFERENCING NEW TABLE AS changed FOR EACH STATEMENT EXECUTE FUNCTION email_gateway_count_files();

CREATE TRIGGER stored_files_count_gone AFTER DELETE ON stored_files REFERENCING OLD TABLE AS changed FOR EACH STATEMENT EXECUTE FUNCTION email_gateway_count_files();

CREATE TRIGGER suppressions_count_added AFTER INSERT ON suppressions REFERENCING NEW TABLE AS added FOR EACH STATEMENT EXECUTE FUNCTION email_gateway_count_added_suppressions();

CREATE TRIGGER suppressions_count_gone AFTER DELETE ON suppressions REFERENCING OLD TABLE AS gone FOR EACH STATEMENT EXECUTE FUNCTION email_gateway_count_gone_suppressions();

CREATE TRIGGER suppressions_unsubscribed AFTER INSERT ON suppressions FOR EACH ROW WHEN (((new.reason = 'UNSUBSCRIBE'::text) AND (new.mailing_id IS NOT NULL))) EXECUTE FUNCTION email_gateway_count_unsubscribe();

ALTER TABLE ONLY api_keys
    ADD CONSTRAINT api_keys_company_id_fkey FOREIGN KEY (company_id) REFERENCES companies(id);

ALTER TABLE ONLY attachments
    ADD CONSTRAINT attachments_company_id_file_id_fkey FOREIGN KEY (company_id, file_id) REFERENCES stored_files(company_id, id);

ALTER TABLE ONLY company_events
    ADD CONSTRAINT company_events_company_id_fkey FOREIGN KEY (company_id) REFERENCES companies(id);

ALTER TABLE ONLY company_quotas
    ADD CONSTRAINT company_quotas_company_id_fkey FOREIGN KEY (company_id) REFERENCES companies(id);

ALTER TABLE ONLY company_reputation
    ADD CONSTRAINT company_reputation_company_id_fkey FOREIGN KEY (company_id) REFERENCES companies(id);

ALTER TABLE ONLY company_reputation_rules
    ADD CONSTRAINT company_reputation_rules_company_id_fkey FOREIGN KEY (company_id) REFERENCES companies(id);

ALTER TABLE ONLY company_retention
    ADD CONSTRAINT company_retention_company_id_fkey FOREIGN KEY (company_id) REFERENCES companies(id);

ALTER TABLE ONLY dispatch_lanes
    ADD CONSTRAINT dispatch_lanes_company_id_fkey FOREIGN KEY (company_id) REFERENCES companies(id);

ALTER TABLE ONLY mailings
    ADD CONSTRAINT mailings_company_id_fkey FOREIGN KEY (company_id) REFERENCES companies(id);

ALTER TABLE ONLY outbox_programs
    ADD CONSTRAINT outbox_programs_company_id_fkey FOREIGN KEY (company_id) REFERENCES companies(id);

ALTER TABLE ONLY person_erasures
    ADD CONSTRAINT person_erasures_company_id_fkey FOREIGN KEY (company_id) REFERENCES companies(id);

ALTER TABLE ONLY recipients
    ADD CONSTRAINT recipients_company_id_fkey FOREIGN KEY (company_id) REFERENCES companies(id);

ALTER TABLE ONLY sender_domains
    ADD CONSTRAINT sender_domains_company_id_fkey FOREIGN KEY (company_id) REFERENCES companies(id);

ALTER TABLE ONLY stored_files
    ADD CONSTRAINT stored_files_company_id_fkey FOREIGN KEY (company_id) REFERENCES companies(id);

ALTER TABLE ONLY suppressions
    ADD CONSTRAINT suppressions_company_id_fkey FOREIGN KEY (company_id) REFERENCES companies(id);

ALTER TABLE ONLY template_events
    ADD CONSTRAINT template_events_company_id_fkey FOREIGN KEY (company_id) REFERENCES companies(id);

ALTER TABLE ONLY template_totals
    ADD CONSTRAINT template_totals_company_id_fkey FOREIGN KEY (company_id) REFERENCES companies(id);

ALTER TABLE ONLY template_versions
    ADD CONSTRAINT template_versions_company_id_name_locale_fkey FOREIGN KEY (company_id, name, locale) REFERENCES templates(company_id, name, locale);

ALTER TABLE ONLY templates
    ADD CONSTRAINT templates_company_id_fkey FOREIGN KEY (company_id) REFERENCES companies(id);

ALTER TABLE ONLY webhook_deliveries
    ADD CONSTRAINT webhook_deliveries_endpoint_id_fkey FOREIGN KEY (endpoint_id) REFERENCES webhook_endpoints(id) ON DELETE CASCADE;

ALTER TABLE ONLY webhook_endpoints
    ADD CONSTRAINT webhook_endpoints_company_id_fkey FOREIGN KEY (company_id) REFERENCES companies(id);

ALTER TABLE ONLY webhook_replays
    ADD CONSTRAINT webhook_replays_endpoint_id_fkey FOREIGN KEY (endpoint_id) REFERENCES webhook_endpoints(id) ON DELETE CASCADE;

ALTER TABLE operator_audit ENABLE ROW LEVEL SECURITY;

CREATE POLICY operator_audit_add ON operator_audit FOR INSERT WITH CHECK (true);

CREATE POLICY operator_audit_expire ON operator_audit FOR DELETE USING ((at < (now() - '2 years'::interval)));

CREATE POLICY operator_audit_read ON operator_audit FOR SELECT USING (true);

CREATE FUNCTION drop_log_partition(of_log text, age interval) RETURNS TABLE(name text, dropped boolean, moved bigint)
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'public', 'pg_temp'
    SET lock_timeout TO '200ms'
    SET standard_conforming_strings TO 'on'
    AS $_$
DECLARE
    most CONSTANT bigint := 50000; -- emails: some 300 ms of email_logs, in which nothing is written; email_events has 5 to 10 rows of each
    key text := CASE of_log WHEN 'email_logs' THEN 'outbox_id' WHEN 'email_events' THEN 'email_log_id' END;
    oldest record;
    waiting bigint;
    kept text;
BEGIN
    IF key IS NULL OR age < interval '1 day' THEN
        RAISE EXCEPTION 'no partitions of % are dropped after %', of_log, age;
    END IF;
    PERFORM FROM owner_locks l WHERE l.name = of_log AND l.slot = 0 FOR UPDATE SKIP LOCKED;
    IF NOT FOUND THEN
        RETURN;
    END IF;
    age := greatest(age, (SELECT max(logs_days) * interval '1 day' FROM company_retention));
    FOR oldest IN
        SELECT p.name, coalesce(p.first_id, '00000000-0000-0000-0000-000000000000') AS first_id, p.end_id
        FROM log_partitions p WHERE p.log = of_log AND p.end_id <= first_id_at(now() - age)
        ORDER BY p.end_id
    LOOP
        SELECT count(*) INTO waiting FROM (
            SELECT FROM email_outbox o WHERE o.id >= oldest.first_id AND o.id < oldest.end_id AND o.target = 'email:send' LIMIT most + 1) o;
        IF waiting > most THEN
            kept := coalesce(kept, oldest.name);
            CONTINUE;
        END IF;
        EXECUTE format('LOCK TABLE ONLY %I IN ACCESS EXCLUSIVE MODE', of_log);
        EXECUTE format('ALTER TABLE %I DETACH PARTITION %I', of_log, oldest.name);
        -- An INSERT into the log itself would fire its statement triggers, which count the rows as new.
        EXECUTE format('INSERT INTO %I SELECT l.* FROM email_outbox o JOIN %I l ON l.%I = o.id WHERE o.id >= $1 AND o.id < $2 AND o.target = ''email:send''',
            of_log || '_default', oldest.name, key) USING oldest.first_id, oldest.end_id;
        GET DIAGNOSTICS waiting = ROW_COUNT;
        EXECUTE format('DROP TABLE %I', oldest.name);
        RETURN QUERY SELECT oldest.name, true, waiting;
        RETURN;
    END LOOP;
    RETURN QUERY SELECT kept, false, 0::bigint WHERE kept IS NOT NULL;
END
$_$;

CREATE FUNCTION email_gateway_add_quota_total() RETURNS trigger
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'public', 'pg_temp'
    SET standard_conforming_strings TO 'on'
    AS $$
BEGIN
    INSERT INTO quota_totals (company_id) VALUES (new.id) ON CONFLICT DO NOTHING;
    RETURN NULL;
END
$$;

CREATE FUNCTION email_gateway_address_of(mailbox text) RETURNS text
    LANGUAGE plpgsql IMMUTABLE STRICT PARALLEL SAFE
    SET search_path TO 'pg_catalog', 'pg_temp'
    SET standard_conforming_strings TO 'on'
    AS $_$
DECLARE
    found text[];
BEGIN
    IF length(mailbox) > 2000 OR mailbox !~ '^[ -~]+$' THEN
        RETURN NULL;
    END IF;
    found := regexp_match(mailbox, '^(?:"(?:[^"\\]|\\.)*"|[A-Za-z0-9!#$%&''*+/=?^_`{|}~ -]+)? ?<([^<>]+)>$');
    RETURN coalesce(found[1], mailbox);
END
$_$;

CREATE FUNCTION email_gateway_admit(company uuid) RETURNS void
    LANGUAGE plpgsql
    SET search_path TO 'pg_catalog', 'public', 'pg_temp'
    SET standard_conforming_strings TO 'on'
    AS $$
BEGIN
    IF pg_has_role(session_user, current_user, 'MEMBER') THEN
        RETURN;
    END IF;
    IF has_schema_privilege(session_user, 'public', 'CREATE') THEN
        RAISE EXCEPTION 'role % may create functions beside the gateway''s tables', session_user
            USING ERRCODE = 'insufficient_privilege', HINT = 'Revoke CREATE on schema public from it; its own tables can stand in a schema of their own.';
    END IF;
    IF EXISTS (
        SELECT FROM outbox_programs p JOIN pg_roles r ON r.rolname = p.role_name
        WHERE p.company_id = company AND pg_has_role(session_user, r.oid, 'MEMBER'))
    THEN
        RETURN;
    END IF;
    RAISE EXCEPTION 'role % may not write emails of company %', session_user, company
        USING ERRCODE = 'insufficient_privilege', HINT = 'The tables'' owner allows it with a row in outbox_programs.';
END
$$;

CREATE FUNCTION email_gateway_await(id uuid) RETURNS void
    LANGUAGE plpgsql
    SET search_path TO 'pg_catalog', 'public', 'pg_temp'
    SET standard_conforming_strings TO 'on'
    AS $$
BEGIN
    PERFORM FROM outbox_aggregates a WHERE a.outbox_id = email_gateway_await.id FOR SHARE;
    IF current_setting('transaction_isolation') <> 'read committed' THEN
        -- The transaction's snapshot does not see what the other one has committed: 40001 if that changed the email.
        PERFORM FROM email_outbox o WHERE o.id = email_gateway_await.id FOR SHARE;
    END IF;
    RAISE EXCEPTION 'awaited' USING ERRCODE = 'EG001'; -- what is rolled back is unlocked
EXCEPTION WHEN SQLSTATE 'EG001' THEN
    RETURN;
END
$$;

CREATE FUNCTION email_gateway_cancel(company uuid, aggregate_type text, aggregate_id text, event_type text DEFAULT NULL::text) RETURNS TABLE(outbox_id uuid, event text, cancelled boolean, status text)
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'public', 'pg_temp'
    SET standard_conforming_strings TO 'on'
    AS $$
DECLARE
    mail uuid;
    visited uuid[] := '{}';
BEGIN
    PERFORM email_gateway_admit(company);
    LOOP
        FOR mail IN
            SELECT n.outbox_id FROM (
                SELECT DISTINCT ON (a.event_type) a.outbox_id FROM outbox_aggregates a
                WHERE a.company_id = company AND a.aggregate_type = email_gateway_cancel.aggregate_type AND a.aggregate_id = email_gateway_cancel.aggregate_id
                  AND (email_gateway_cancel.event_type IS NULL OR a.event_type = email_gateway_cancel.event_type)
                ORDER BY a.event_type, a.turn DESC
            ) n WHERE n.outbox_id <> ALL (visited) ORDER BY n.outbox_id -- as all callers lock them
        LOOP
            visited := visited || mail;
            IF email_gateway_hold(mail) THEN
                INSERT INTO quota_deltas (company_id, transaction_writes) VALUES (company, email_gateway_transaction_writes(company) + 1);
                PERFORM email_gateway_withdraw(mail);
            END IF;
        END LOOP;
        EXIT WHEN NOT FOUND; -- else transactions that were waited for may have added emails
    END LOOP;
    RETURN QUERY
        SELECT n.outbox_id, n.event_type, coalesce(s = 'CANCELLED', false), s FROM (
            SELECT DISTINCT ON (a.event_type) a.outbox_id, a.event_type FROM outbox_aggregates a
            WHERE a.company_id = company AND a.aggregate_type = email_gateway_cancel.aggregate_type AND a.aggregate_id = email_gateway_cancel.aggregate_id
              AND a.outbox_id = ANY (visited)
            ORDER BY a.event_type, a.turn DESC
        ) n CROSS JOIN LATERAL email_gateway_status(n.outbox_id) s ORDER BY n.outbox_id;
END
$$;

CREATE FUNCTION email_gateway_check_active(company uuid) RETURNS void
    LANGUAGE plpgsql
    SET search_path TO 'pg_catalog', 'public', 'pg_temp'
    SET standard_conforming_strings TO 'on'
    AS $$
BEGIN
    IF EXISTS (SELECT FROM companies c WHERE c.id = company AND c.suspended_at IS NOT NULL) THEN
        RAISE EXCEPTION 'company % is suspended', company USING ERRCODE = 'EG403';
    END IF;
END
$$;

CREATE FUNCTION email_gateway_check_quotas(company uuid, scheduled bigint, emails bigint, body_bytes bigint, adds_person boolean) RETURNS void
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'public', 'pg_temp'
    SET standard_conforming_strings TO 'on'
    AS $$
DECLARE
    u record;
BEGIN
    PERFORM FROM (
        SELECT coalesce(sum(d.scheduled), 0) AS scheduled, coalesce(sum(d.emails), 0) AS emails, coalesce(sum(d.body_bytes), 0) AS body_bytes
        FROM quota_deltas d WHERE d.company_id = company AND d.xid = pg_current_xact_id_if_assigned()
    ) o CROSS JOIN LATERAL (VALUES
        ('scheduled_emails', email_gateway_check_quotas.scheduled, o.scheduled, 20000), ('emails_per_day', email_gateway_check_quotas.emails, o.emails, 20000),
        ('stored_body_bytes', email_gateway_check_quotas.body_bytes, o.body_bytes, 1 << 30), ('recipients', email_gateway_check_quotas.adds_person::int, 0, 20000)
    ) AS w (quota, more, own, margin) JOIN email_gateway_use(company, false) e ON e.quota = w.quota
    WHERE e.most > 0 AND w.more > 0 AND (e.most - e.used - w.more < greatest(e.most / 4, w.margin) OR w.own > (e.most - e.used) / 64);
    IF NOT FOUND THEN
        RETURN;
    END IF;
    PERFORM email_gateway_hold_quotas(company);
    IF email_gateway_check_quotas.scheduled > 0 THEN
        PERFORM email_gateway_recount_scheduled(company, interval '1 s');
    END IF;
    FOR u IN
        SELECT e.quota, e.most, e.used, e.resets_at, CASE e.quota WHEN 'scheduled_emails' THEN scheduled WHEN 'emails_per_day' THEN emails
               WHEN 'stored_body_bytes' THEN body_bytes WHEN 'recipients' THEN adds_person::int ELSE 0 END AS more
        FROM email_gateway_use(company, false) e
    LOOP
        CONTINUE WHEN u.most = 0 OR u.more = 0 OR u.used + u.more <= u.most;
        IF u.quota = 'scheduled_emails' THEN
            u.used := coalesce(email_gateway_count_scheduled(company, u.used), u.used);
            CONTINUE WHEN u.used + u.more <= u.most;
        END IF;
        RAISE EXCEPTION 'quota % is exceeded: limit %, use %, reset %', u.quota, u.most, u.used,
            coalesce(to_char(u.resets_at AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS"Z"'), 'none')
            USING ERRCODE = 'EG429', DETAIL = jsonb_build_object('quota', u.quota, 'limit', u.most, 'use', u.used, 'reset', u.resets_at);
    END LOOP;
END
$$;

CREATE FUNCTION email_gateway_check_times(send_at timestamp with time zone, ttl interval) RETURNS void
    LANGUAGE plpgsql
    SET search_path TO 'pg_catalog', 'pg_temp'
    SET standard_conforming_strings TO 'on'
    AS $$
BEGIN
    IF send_at > clock_timestamp() + interval '1 year' THEN
        RAISE EXCEPTION 'send_at must be within a year' USING ERRCODE = 'invalid_parameter_value';
    END IF;
    IF ttl IS NULL OR ttl NOT BETWEEN interval '1 minute' AND interval '720 hours' THEN
        RAISE EXCEPTION 'ttl must be 1 minute to 720 hours' USING ERRCODE = 'invalid_parameter_value';
    END IF;
END
$$;

CREATE FUNCTION email_gateway_completed(email jsonb) RETURNS jsonb
    LANGUAGE sql STABLE
    SET search_path TO 'pg_catalog', 'public', 'pg_temp'
    SET standard_conforming_strings TO 'on'
    AS $$
    SELECT CASE WHEN jsonb_typeof(email -> 'recipient') IS DISTINCT FROM 'object' OR email #>> '{recipient,email}' <> '' THEN email
                WHEN jsonb_typeof(email -> 'to') = 'string' AND email_gateway_is_address(email ->> 'to')
                THEN jsonb_set(email, '{recipient,email}', email -> 'to')
                ELSE email #- '{recipient,email}' END
$$;

CREATE FUNCTION email_gateway_count_added_emails() RETURNS trigger
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'public', 'pg_temp'
    SET standard_conforming_strings TO 'on'
    AS $$
BEGIN
    INSERT INTO quota_deltas (company_id, emails, scheduled, body_bytes)
    SELECT company_id, count(*), count(*) FILTER (WHERE next_at > greatest(now(), created_at)),
           sum(coalesce(octet_length(html), 0) + coalesce(octet_length(text_body), 0))
    FROM added WHERE target = 'email:send' GROUP BY company_id;
    RETURN NULL;
END
$$;

CREATE FUNCTION email_gateway_count_added_intakes() RETURNS trigger
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'public', 'pg_temp'
    SET standard_conforming_strings TO 'on'
    AS $$
BEGIN
    INSERT INTO quota_deltas (company_id, recipients) SELECT company_id, count(*) FROM added WHERE counted GROUP BY company_id;
    RETURN NULL;
END
$$;

CREATE FUNCTION email_gateway_count_added_recipients() RETURNS trigger
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'public', 'pg_temp'
    SET standard_conforming_strings TO 'on'
    AS $$
BEGIN
    INSERT INTO quota_deltas (company_id, recipients) SELECT company_id, count(*) FROM added WHERE deleted_at IS NULL GROUP BY company_id;
    RETURN NULL;
END
$$;

CREATE FUNCTION email_gateway_count_added_suppressions() RETURNS trigger
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'public', 'pg_temp'
    SET standard_conforming_strings TO 'on'
    AS $$
BEGIN
    INSERT INTO quota_deltas (company_id, suppressions) SELECT company_id, count(*) FROM added GROUP BY company_id;
    RETURN NULL;
END
$$;

CREATE FUNCTION email_gateway_count_changed_email() RETURNS trigger
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'public', 'pg_temp'
    SET standard_conforming_strings TO 'on'
    AS $$
BEGIN
    INSERT INTO quota_deltas (company_id, body_bytes)
    VALUES (new.company_id, coalesce(octet_length(new.html), 0) + coalesce(octet_length(new.text_body), 0)
                            - coalesce(octet_length(old.html), 0) - coalesce(octet_length(old.text_body), 0));
    RETURN NULL;
END
$$;

CREATE FUNCTION email_gateway_count_changed_recipient() RETURNS trigger
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'public', 'pg_temp'
    SET standard_conforming_strings TO 'on'
    AS $$
BEGIN
    INSERT INTO quota_deltas (company_id, recipients) VALUES (new.company_id, CASE WHEN new.deleted_at IS NULL THEN 1 ELSE -1 END);
    RETURN NULL;
END
$$;

CREATE FUNCTION email_gateway_count_files() RETURNS trigger
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'public', 'pg_temp'
    SET standard_conforming_strings TO 'on'
    AS $$
BEGIN
    INSERT INTO quota_deltas (company_id, file_bytes)
    SELECT company_id, sum(bytes) * CASE TG_OP WHEN 'INSERT' THEN 1 ELSE -1 END FROM changed GROUP BY company_id;
    RETURN NULL;
END
$$;

CREATE FUNCTION email_gateway_count_gone_emails() RETURNS trigger
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'public', 'pg_temp'
    SET standard_conforming_strings TO 'on'
    AS $$
BEGIN
    INSERT INTO quota_deltas (company_id, body_bytes)
    SELECT company_id, -sum(coalesce(octet_length(html), 0) + coalesce(octet_length(text_body), 0)) FROM gone
    WHERE target = 'email:send' AND (html <> '' OR text_body <> '') GROUP BY company_id;
    RETURN NULL;
END
$$;

CREATE FUNCTION email_gateway_count_gone_intakes() RETURNS trigger
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'public', 'pg_temp'
    SET standard_conforming_strings TO 'on'
    AS $$
BEGIN
    INSERT INTO quota_deltas (company_id, recipients) SELECT company_id, -count(*) FROM gone WHERE counted GROUP BY company_id;
    RETURN NULL;
END
$$;

CREATE FUNCTION email_gateway_count_gone_recipients() RETURNS trigger
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'public', 'pg_temp'
    SET standard_conforming_strings TO 'on'
    AS $$
BEGIN
    INSERT INTO quota_deltas (company_id, recipients) SELECT company_id, -count(*) FROM gone WHERE deleted_at IS NULL GROUP BY company_id;
    RETURN NULL;
END
$$;

CREATE FUNCTION email_gateway_count_gone_suppressions() RETURNS trigger
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'public', 'pg_temp'
    SET standard_conforming_strings TO 'on'
    AS $$
BEGIN
    INSERT INTO quota_deltas (company_id, suppressions) SELECT company_id, -count(*) FROM gone GROUP BY company_id;
    RETURN NULL;
END
$$;

CREATE FUNCTION email_gateway_count_scheduled(company uuid, used bigint) RETURNS bigint
    LANGUAGE plpgsql STABLE STRICT SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'public', 'pg_temp'
    SET standard_conforming_strings TO 'on'
    AS $$
DECLARE
    most CONSTANT bigint := 100000;
BEGIN
    IF used > most THEN
        RETURN NULL;
    END IF;
    RETURN (SELECT p.scheduled FROM email_gateway_scheduled_page(company, 'ffffffff-ffff-ffff-ffff-ffffffffffff', most + 1, 0, NULL, NULL) p WHERE p.seen <= most);
END
$$;

CREATE FUNCTION email_gateway_count_templates() RETURNS trigger
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'public', 'pg_temp'
    SET standard_conforming_strings TO 'on'
    AS $$
BEGIN
    INSERT INTO quota_deltas (company_id, body_bytes)
    VALUES (coalesce(new.company_id, old.company_id), coalesce(octet_length(new.html), 0) + coalesce(octet_length(new.text_body), 0)
                                                    - coalesce(octet_length(old.html), 0) - coalesce(octet_length(old.text_body), 0));
    RETURN NULL;
END
$$;

CREATE FUNCTION email_gateway_count_unsubscribe() RETURNS trigger
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'public', 'pg_temp'
    SET standard_conforming_strings TO 'on'
    AS $$
BEGIN
    INSERT INTO mailing_feedback (mailing_id, unsubscribed) VALUES (NEW.mailing_id, 1);
    RETURN NULL;
END
$$;

CREATE FUNCTION email_gateway_count_usage() RETURNS trigger
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'public', 'pg_temp'
    SET standard_conforming_strings TO 'on'
    AS $$
BEGIN
    INSERT INTO usage_days AS u (company_id, day, accepted, body_bytes)
    SELECT company_id, day, sum(emails), sum(greatest(body_bytes, 0)) FROM folded
    WHERE emails > 0 OR body_bytes > 0 GROUP BY company_id, day ORDER BY company_id, day
    ON CONFLICT (company_id, day) DO UPDATE SET accepted = u.accepted + excluded.accepted, body_bytes = u.body_bytes + excluded.body_bytes;
    RETURN NULL;
END
$$;

CREATE FUNCTION email_gateway_drop_attachments() RETURNS trigger
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'public', 'pg_temp'
    SET standard_conforming_strings TO 'on'
    AS $$
BEGIN
    DELETE FROM attachments WHERE owner_id = OLD.id AND company_id = OLD.company_id;
    RETURN NULL;
END
$$;

CREATE FUNCTION email_gateway_enqueue(company uuid, aggregate_type text, aggregate_id text, event_type text, email jsonb, send_at timestamp with time zone DEFAULT NULL::timestamp with time zone, ttl interval DEFAULT '24:00:00'::interval, request_id text DEFAULT NULL::text) RETURNS TABLE(outbox_id uuid, created boolean, status text)
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'public', 'pg_temp'
    SET standard_conforming_strings TO 'on'
    AS $_$
DECLARE
    body jsonb := email_gateway_completed(email_gateway_present(email));
    accepted_at timestamptz := date_trunc('milliseconds', clock_timestamp());
    due timestamptz := greatest(accepted_at, send_at);
    request text := coalesce(nullif(btrim(request_id), ''), 'tx-' || pg_current_xact_id()::text);
    person uuid;
    from_address text;
    usual text;
    lane bigint;
    faults jsonb;
    newcomer uuid;
    holder uuid;
BEGIN
    PERFORM email_gateway_admit(company);
    PERFORM email_gateway_check_times(send_at, ttl);
    PERFORM email_gateway_check_active(company);
    IF request !~ '^[!-?A-~]{1,128}$' THEN
        RAISE EXCEPTION 'request_id must have 1 to 128 printable ASCII characters without space and @' USING ERRCODE = 'invalid_parameter_value';
    END IF;
    IF jsonb_typeof(body) IS DISTINCT FROM 'object' THEN
        RAISE EXCEPTION 'email must be a JSON object' USING ERRCODE = 'invalid_parameter_value';
    END IF;
    SELECT c.default_from INTO usual FROM companies c WHERE c.id = company;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'there is no company %', company USING ERRCODE = 'no_data_found';
    END IF;

    SELECT jsonb_agg(to_jsonb(f)) INTO faults FROM email_gateway_misshapen(body) f;
    IF faults IS NULL THEN
        SELECT jsonb_agg(to_jsonb(f)) INTO faults FROM email_gateway_faults(body) f;
    END IF;
    SELECT coalesce(faults || jsonb_agg(to_jsonb(f)), faults, jsonb_agg(to_jsonb(f))) INTO faults
    FROM email_gateway_misnamed(aggregate_type, aggregate_id, event_type) f;
    IF faults IS NULL THEN
        from_address := email_gateway_normal_address(email_gateway_address_of(body ->> 'from'));
        IF NOT EXISTS (SELECT FROM sender_domains d WHERE d.company_id = company AND d.domain = split_part(from_address, '@', 2))
           AND from_address <> email_gateway_normal_address(coalesce(substring(usual FROM '<([^<>]+)>\s*$'), usual)) THEN
            faults := jsonb_build_array(jsonb_build_object('field', 'from', 'code', 'SENDER_NOT_ALLOWED',
                'message', 'is neither the company''s default sender nor of a domain registered for it'));
        END IF;
        person := (body #>> '{recipient,recipientId}')::uuid;
        IF person IS NOT NULL AND NOT EXISTS (
               SELECT FROM recipients r WHERE r.id = person AND r.company_id = company AND r.deleted_at IS NULL
                  AND email_gateway_normal_address(r.email) = email_gateway_normal_address(body ->> 'to'))
           AND NOT EXISTS (
               SELECT FROM recipient_intakes i WHERE i.recipient_id = person AND i.company_id = company
                  AND email_gateway_normal_address(i.email) = email_gateway_normal_address(body ->> 'to')) THEN
            faults := coalesce(faults, '[]') || jsonb_build_object('field', 'recipient.recipientId', 'code', 'RECIPIENT_NOT_FOUND',
                'message', 'is not a recipient of this company at this address');
        END IF;
    END IF;
    IF faults IS NOT NULL THEN
        RAISE EXCEPTION 'the email is not valid: %', (SELECT string_agg((f ->> 'field') || ' ' || (f ->> 'message'), '; ') FROM jsonb_array_elements(faults) f)
            USING ERRCODE = 'invalid_parameter_value', DETAIL = faults::text;
    END IF;

    -- A UUIDv7: the time in milliseconds, then a random UUID's bits with the version changed.
    newcomer := encode(set_bit(set_bit(overlay(uuid_send(gen_random_uuid())
                    PLACING substring(int8send((extract(epoch FROM accepted_at) * 1000)::bigint) FROM 3) FROM 1 FOR 6), 52, 1), 53, 1), 'hex')::uuid;
    holder := email_gateway_take_key(company, aggregate_type, aggregate_id, event_type, newcomer);
    IF holder <> newcomer THEN
        RETURN QUERY SELECT holder, false, email_gateway_status(holder);
        RETURN;
    END IF;
    INSERT INTO quota_deltas (company_id, transaction_writes) VALUES (company, email_gateway_transaction_writes(company) + 1);
    PERFORM email_gateway_check_quotas(company, (due > accepted_at)::int, 1, coalesce(octet_length(body ->> 'html'), 0) + coalesce(octet_length(body ->> 'text'), 0), person IS NULL);
    SELECT l.id INTO lane FROM dispatch_lanes l
    WHERE l.company_id = company AND l.mailing_id IS NULL AND l.queue = CASE
        WHEN coalesce(body ->> 'priority', '5')::int <= 3 THEN 'email:send:high'
        WHEN coalesce(body ->> 'priority', '5')::int <= 7 THEN 'email:send' ELSE 'email:send:low' END;
    -- checker_version 0: nobody has looked at the html yet, so the worker will.
    INSERT INTO email_outbox (id, company_id, lane_id, request_id, sender, html, text_body, auto_text, html_sha256, checker_version, priority, delivery,
                              aggregate_type, aggregate_id, event_type, created_at, next_at, expires_at, payload)
    VALUES (newcomer, company, lane, request, coalesce(body ->> 'from', usual), coalesce(body ->> 'html', ''), nullif(body ->> 'text', ''), coalesce(body ->> 'autoText', 'true')::boolean,
            sha256(convert_to(coalesce(body ->> 'html', ''), 'UTF8')), 0, coalesce(body ->> 'priority', '5')::smallint, coalesce(body ->> 'delivery', 'at_least_once'),
            email_gateway_enqueue.aggregate_type, email_gateway_enqueue.aggregate_id, email_gateway_enqueue.event_type, accepted_at, due, due + ttl,
            body - '{from,html,text,autoText,priority,delivery}'::text[]
            || jsonb_build_object('outboxId', newcomer, 'companyId', company, 'requestId', request, 'htmlRef', newcomer, 'recipient',
                   body -> 'recipient' || jsonb_strip_nulls(jsonb_build_object('recipientId', person))));
    IF due > accepted_at THEN
        PERFORM email_gateway_log(newcomer);
    END IF;
    RETURN QUERY SELECT newcomer, true, 'PENDING';
END
$_$;

CREATE FUNCTION email_gateway_faults(email jsonb) RETURNS TABLE(field text, code text, message text)
    LANGUAGE sql STABLE
    SET search_path TO 'pg_catalog', 'public', 'pg_temp'
    SET standard_conforming_strings TO 'on'
    AS $_$
    WITH texts (name, value, required, longest) AS (VALUES
        ('subject', email ->> 'subject', true, 150),
        ('recipient.externalId', email #>> '{recipient,externalId}', false, 200),
        ('recipient.razaoSocial', email #>> '{recipient,razaoSocial}', false, 200),
        ('recipient.nome', email #>> '{recipient,nome}', false, 200)
    ), bodies (name, value, required) AS (VALUES
        ('html', email ->> 'html', false), ('text', email ->> 'text', false)
    ), addresses (name, value, required) AS (
        VALUES ('to', email ->> 'to', true), ('replyTo', email ->> 'replyTo', false), ('recipient.email', email #>> '{recipient,email}', false)
        UNION ALL
        SELECT l.name || '[' || (e.n - 1) || ']', e.value, true
        FROM (VALUES ('cc'), ('bcc')) AS l (name)
        CROSS JOIN LATERAL jsonb_array_elements_text(coalesce(email -> l.name, '[]')) WITH ORDINALITY AS e (value, n)
    ), headers (name, value) AS (
        SELECT key, value FROM jsonb_each_text(coalesce(email -> 'headers', '{}'))
    )
    SELECT name, 'REQUIRED', 'is required' FROM (
        SELECT name, value, required FROM texts UNION ALL SELECT * FROM bodies UNION ALL SELECT * FROM addresses
        UNION ALL VALUES ('recipient', email ->> 'recipient', true)) AS all_of_them
    WHERE required AND coalesce(value, '') = ''
    UNION ALL
    SELECT name, 'TOO_LONG', 'must have at most ' || longest || ' characters' FROM texts WHERE length(value) > longest
    UNION ALL
    SELECT name, 'BAD_CHARACTER', 'must not hold control characters or line ends' FROM texts WHERE value ~ '[\u0001-\u001f\u007f-\u009f\u2028\u2029]'
    UNION ALL
    SELECT 'recipient.externalId', 'REQUIRED', 'must not be empty' WHERE email #>> '{recipient,externalId}' = ''
    UNION ALL
    SELECT name, 'TOO_LONG', 'must be at most 524288 bytes of UTF-8' FROM bodies WHERE octet_length(value) > 524288
    UNION ALL
    SELECT name, 'INVALID_EMAIL', 'is not an email address with its domain in ASCII' FROM addresses WHERE (value <> '' OR NOT required) AND NOT email_gateway_is_address(value)
    UNION ALL
    SELECT 'from', 'INVALID_EMAIL', 'must be an address, or a name in ASCII with one: "Acme" <billing@acme.example>'
    WHERE email ? 'from' AND email_gateway_is_address(email_gateway_address_of(email ->> 'from')) IS NOT TRUE
    UNION ALL
    SELECT name, 'TOO_MANY', 'must have at most 5 entries' FROM (VALUES ('cc'), ('bcc'), ('tags')) AS l (name)
    WHERE jsonb_array_length(coalesce(email -> name, '[]')) > 5
    UNION ALL
    SELECT 'tags[' || (n - 1) || ']', f.code, f.message
    FROM jsonb_array_elements_text(coalesce(email -> 'tags', '[]')) WITH ORDINALITY AS e (value, n)
    CROSS JOIN LATERAL (VALUES
        ('REQUIRED', 'is required', value = ''), ('TOO_LONG', 'must have at most 64 characters', length(value) > 64),
        ('BAD_CHARACTER', 'must hold printable characters only', value ~ '[\u0001-\u001f\u007f-\u009f\u2028\u2029]')) AS f (code, message, so)
    WHERE f.so
    UNION ALL
    SELECT 'headers', 'TOO_MANY', 'must have at most 10 entries' WHERE (SELECT count(*) FROM headers) > 10
    UNION ALL
    SELECT 'headers.' || left(name, 126), 'INVALID_HEADER_NAME', 'must have a name of 1 to 126 printable ASCII characters without space and colon'
    FROM headers WHERE name !~ '^[!-9;-~]{1,126}$'
    UNION ALL
    SELECT 'headers.' || left(name, 126), 'RESERVED_HEADER', 'is set by the gateway or the provider' FROM headers
    WHERE email_gateway_is_reserved(name)
    UNION ALL
    SELECT 'headers.' || left(name, 126), 'INVALID_HEADER_VALUE', 'must have a value of 1 to 995 printable ASCII characters, with its name at most 996'
    FROM headers WHERE value !~ '^[ -~]+$' OR length(value) > 995 OR length(name) + length(value) > 996 OR btrim(value) = ''
    UNION ALL
    SELECT 'headers.' || left(max(name), 126), 'DUPLICATE_FIELD', 'is given twice, in different case' FROM headers GROUP BY lower(name) HAVING count(*) > 1
    UNION ALL
    SELECT 'recipient.email', 'MISMATCH', 'must be the same address as `to`, or be left out'
    WHERE email_gateway_normal_address(email #>> '{recipient,email}') <> email_gateway_normal_address(email ->> 'to')
    UNION ALL
    SELECT 'recipient', 'REQUIRED', 'needs recipientId, externalId or cpfCnpjHash'
    WHERE email ? 'recipient' AND NOT (email -> 'recipient' ?| '{recipientId,externalId,cpfCnpjHash}'::text[])
    UNION ALL
    SELECT 'recipient.recipientId', 'INVALID_ID', 'must be a UUID'
    WHERE email #>> '{recipient,recipientId}' !~ '^[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}$'
    UNION ALL
    SELECT 'recipient.cpfCnpjHash', 'INVALID_HASH', 'must be a SHA-256 in 64 lower-case hex digits' WHERE email #>> '{recipient,cpfCnpjHash}' !~ '^[0-9a-f]{64}$'
    UNION ALL
    SELECT 'priority', 'OUT_OF_RANGE', 'must be a whole number from 1 to 10' WHERE email ->> 'priority' !~ '^([1-9]|10)$'
    UNION ALL
    SELECT 'html', 'REQUIRED', 'is required unless text is given' WHERE coalesce(email ->> 'html', '') = '' AND coalesce(email ->> 'text', '') = ''
    UNION ALL
    SELECT 'html', 'SHOWS_NOTHING', 'shows nothing: it needs a text, an image or the like' WHERE NOT email_gateway_shows(email ->> 'html')
    UNION ALL
    SELECT 'from', 'TOO_LONG', 'must have at most 992 characters' WHERE length(email ->> 'from') > 992
    UNION ALL
    SELECT 'delivery', 'NOT_ALLOWED', 'must be one of: at_least_once, at_most_once' WHERE email ->> 'delivery' NOT IN ('at_least_once', 'at_most_once')
$_$;

CREATE FUNCTION email_gateway_feed_company_event() RETURNS trigger
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'public', 'pg_temp'
    SET standard_conforming_strings TO 'on'
    AS $$
BEGIN
    INSERT INTO event_feed (company_id, email_ids, first_seqs, last_seqs, sent) VALUES (NEW.company_id, ARRAY[NEW.id], '{1}', '{1}', 0);
    RETURN NULL;
END
$$;

CREATE FUNCTION email_gateway_feed_events() RETURNS trigger
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'public', 'pg_temp'
    SET standard_conforming_strings TO 'on'
    SET enable_seqscan TO 'off'
    AS $$
DECLARE
    deleted bigint;
BEGIN
    WITH one AS MATERIALIZED (
        SELECT a.*, (SELECT o.company_id FROM email_outbox o WHERE o.id = a.email_log_id) AS company_id
        FROM (
            SELECT email_log_id, min(seq) AS first, max(seq) AS last, count(*) FILTER (WHERE type = 'SENT') AS sent,
                   count(*) FILTER (WHERE type IN ('DELIVERED', 'BOUNCED', 'COMPLAINED')) AS reported
            FROM added GROUP BY email_log_id
        ) a
    ), fed AS (
        INSERT INTO event_feed (company_id, email_ids, first_seqs, last_seqs, sent, reported)
        SELECT company_id, array_agg(email_log_id), array_agg(first), array_agg(last), sum(sent), nullif(sum(reported), 0)
        FROM one WHERE company_id IS NOT NULL GROUP BY company_id
    )
    SELECT count(*) INTO deleted FROM one WHERE company_id IS NULL;
    IF deleted = 0 THEN
        RETURN NULL;
    END IF;
    INSERT INTO event_feed (company_id, email_ids, first_seqs, last_seqs, sent, reported)
    SELECT company_id, array_agg(email_log_id), array_agg(first), array_agg(last), sum(sent), nullif(sum(reported), 0)
    FROM (
        SELECT email_log_id, first, last, sent, reported,
            (SELECT l.company_id FROM email_logs l WHERE l.outbox_id BETWEEN email_log_id AND email_log_id ORDER BY l.outbox_id LIMIT 1) AS company_id
        FROM (
            SELECT email_log_id, min(seq) AS first, max(seq) AS last, count(*) FILTER (WHERE type = 'SENT') AS sent,
                   count(*) FILTER (WHERE type IN ('DELIVERED', 'BOUNCED', 'COMPLAINED')) AS reported
            FROM added a WHERE NOT EXISTS (SELECT FROM email_outbox o WHERE o.id = a.email_log_id) GROUP BY email_log_id
        ) one
    ) of_company
    WHERE company_id IS NOT NULL GROUP BY company_id;
    RETURN NULL;
END
$$;

CREATE FUNCTION email_gateway_fold_files() RETURNS trigger
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'public', 'pg_temp'
    SET standard_conforming_strings TO 'on'
    AS $$
BEGIN
    UPDATE quota_totals t SET file_bytes = t.file_bytes + f.file_bytes
    FROM (SELECT company_id, sum(file_bytes) AS file_bytes FROM folded WHERE file_bytes <> 0 GROUP BY company_id) f WHERE t.company_id = f.company_id;
    RETURN NULL;
END
$$;

CREATE FUNCTION email_gateway_history() RETURNS text
    LANGUAGE plpgsql STABLE
    SET search_path TO 'pg_catalog', 'public', 'pg_temp'
    SET standard_conforming_strings TO 'on'
    AS $$
DECLARE
    server text;
    timeline text;
BEGIN
    BEGIN
        SELECT system_identifier INTO server FROM pg_control_system();
    EXCEPTION WHEN insufficient_privilege OR feature_not_supported OR undefined_function THEN
        NULL;
    END;
    BEGIN
        timeline := left(pg_walfile_name(pg_current_wal_lsn()), 8);
    EXCEPTION WHEN insufficient_privilege OR feature_not_supported OR undefined_function
        OR object_not_in_prerequisite_state THEN -- the last of Aurora, and of a standby, on which nothing is written
        NULL;
    END;
    RETURN concat_ws('.', 'event_positions'::regclass::oid, server, timeline);
END
$$;

CREATE FUNCTION email_gateway_hold(id uuid) RETURNS boolean
    LANGUAGE plpgsql
    SET search_path TO 'pg_catalog', 'public', 'pg_temp'
    SET standard_conforming_strings TO 'on'
    AS $$
BEGIN
    IF NOT EXISTS (SELECT FROM email_outbox o WHERE o.id = email_gateway_hold.id AND o.status IN ('PENDING', 'ENQUEUED', 'RETRY_SCHEDULED')) THEN
        RETURN false;
    END IF;
    PERFORM FROM outbox_aggregates a WHERE a.outbox_id = email_gateway_hold.id FOR UPDATE;
    PERFORM FROM email_outbox o WHERE o.id = email_gateway_hold.id FOR UPDATE;
    IF EXISTS (SELECT FROM email_outbox o WHERE o.id = email_gateway_hold.id AND o.status IN ('PENDING', 'ENQUEUED', 'RETRY_SCHEDULED')) THEN
        RETURN true;
    END IF;
    RAISE EXCEPTION 'too late' USING ERRCODE = 'EG001'; -- what is rolled back is unlocked
EXCEPTION WHEN SQLSTATE 'EG001' THEN
    RETURN false;
END
$$;

CREATE FUNCTION email_gateway_hold_quotas(company uuid) RETURNS void
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'public', 'pg_temp'
    SET standard_conforming_strings TO 'on'
    SET lock_timeout TO '200ms'
    AS $$
BEGIN
    PERFORM FROM quota_totals t WHERE t.company_id = company FOR UPDATE;
EXCEPTION
    WHEN lock_not_available THEN
        RAISE EXCEPTION 'the company is close to a quota, and another open transaction is using what is left'
            USING ERRCODE = 'lock_not_available', HINT = 'Roll back and try again.';
END
$$;

CREATE FUNCTION email_gateway_is_address(address text) RETURNS boolean
    LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE
    SET search_path TO 'pg_catalog', 'pg_temp'
    SET standard_conforming_strings TO 'on'
    AS $_$
    SELECT length(address) <= 254 AND length(split_part(address, '@', 1)) <= 64 AND length(split_part(address, '@', 2)) <= 253
       AND address ~ '^[A-Za-z0-9!#$%&''*+/=?^_`{|}~-]+(\.[A-Za-z0-9!#$%&''*+/=?^_`{|}~-]+)*@([A-Za-z0-9]([A-Za-z0-9-]{0,61}[A-Za-z0-9])?\.)+[A-Za-z0-9]([A-Za-z0-9-]{0,61}[A-Za-z0-9])?$'
       AND address !~ '\.[0-9]+$'
$_$;

CREATE FUNCTION email_gateway_is_blank(value text) RETURNS boolean
    LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE
    SET search_path TO 'pg_catalog', 'pg_temp'
    SET standard_conforming_strings TO 'on'
    AS $$
    SELECT value !~ '[^\u0009-\u000d\u0020\u0085\u00a0\u00ad\u034f\u061c\u115f\u1160\u1680\u17b4\u17b5\u180e\u2000-\u200f\u2028-\u202f\u205f-\u2069\u2800\u3000\u3164\ufe00-\ufe0f\ufeff\uffa0\U000e0000-\U000e01ef]'
$$;

CREATE FUNCTION email_gateway_is_reserved(name text) RETURNS boolean
    LANGUAGE sql IMMUTABLE
    SET search_path TO 'pg_catalog', 'public', 'pg_temp'
    SET standard_conforming_strings TO 'on'
    AS $$
    SELECT lower(name) ~ '^(content-|dkim-|x-ses-|list-unsubscribe|resent-|arc-)' OR lower(name) IN (
        'from', 'to', 'cc', 'bcc', 'subject', 'reply-to', 'date', 'message-id', 'mime-version', 'return-path', 'sender', 'received',
        'authentication-results', 'received-spf', 'delivered-to')
$$;

CREATE FUNCTION email_gateway_keep_template() RETURNS trigger
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'public', 'pg_temp'
    SET standard_conforming_strings TO 'on'
    AS $$
BEGIN
    UPDATE email_logs SET template = OLD.template WHERE outbox_id = OLD.id AND company_id = OLD.company_id;
    RETURN NULL;
END
$$;

CREATE FUNCTION email_gateway_last_event(id uuid) RETURNS TABLE(event_seq integer, last_event text)
    LANGUAGE plpgsql STABLE ROWS 1
    SET search_path TO 'pg_catalog', 'public', 'pg_temp'
    SET standard_conforming_strings TO 'on'
    AS $_$
BEGIN
    RETURN QUERY EXECUTE 'SELECT l.event_seq, l.last_event FROM email_logs l WHERE l.outbox_id = $1' USING id;
END
$_$;

CREATE FUNCTION email_gateway_log(id uuid) RETURNS void
    LANGUAGE sql
    SET search_path TO 'pg_catalog', 'public', 'pg_temp'
    SET standard_conforming_strings TO 'on'
    AS $$
    INSERT INTO email_logs (outbox_id, company_id, recipient_id, recipient, subject, status, attempts, throttles, request_id, external_id, tags,
                            possible_duplicate, expires_at, created_at, event_seq, send_at)
    SELECT o.id, o.company_id, (o.payload #>> '{recipient,recipientId}')::uuid, o.payload ->> 'to', o.payload ->> 'subject', o.status, o.attempts, o.throttles,
           o.request_id, o.payload #>> '{recipient,externalId}', ARRAY(SELECT jsonb_array_elements_text(coalesce(o.payload -> 'tags', '[]'))),
           o.possible_duplicate, o.expires_at, o.created_at, 0, o.next_at
    FROM email_outbox o WHERE o.id = email_gateway_log.id
    ON CONFLICT (outbox_id) DO NOTHING
$$;

CREATE FUNCTION email_gateway_mark_intake() RETURNS trigger
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'public', 'pg_temp'
    SET standard_conforming_strings TO 'on'
    AS $$
BEGIN
    new.counted := NOT EXISTS (SELECT FROM recipients r WHERE r.id = new.recipient_id AND r.deleted_at IS NULL)
        AND NOT EXISTS (SELECT FROM recipient_intakes i WHERE i.recipient_id = new.recipient_id);
    RETURN new;
END
$$;

CREATE FUNCTION email_gateway_misnamed(aggregate_type text, aggregate_id text, event_type text) RETURNS TABLE(field text, code text, message text)
    LANGUAGE sql STABLE
    SET search_path TO 'pg_catalog', 'pg_temp'
    SET standard_conforming_strings TO 'on'
    AS $_$
    SELECT name, 'INVALID_NAME',
           'must have 1 to ' || longest || ' characters, begin with a letter or digit and hold only letters, digits and . _ : = ~ -'
    FROM (VALUES ('aggregate_type', aggregate_type, 64), ('aggregate_id', aggregate_id, 200), ('event_type', event_type, 64)) AS n (name, value, longest)
    WHERE (value ~ '^[A-Za-z0-9][A-Za-z0-9._:=~-]*$' AND length(value) <= longest) IS NOT TRUE
$_$;

CREATE FUNCTION email_gateway_misshapen(email jsonb) RETURNS TABLE(field text, code text, message text)
    LANGUAGE sql STABLE
    SET search_path TO 'pg_catalog', 'public', 'pg_temp'
    SET standard_conforming_strings TO 'on'
    AS $$
    SELECT g.name, CASE WHEN g.type IS NULL THEN 'UNKNOWN_FIELD' ELSE 'WRONG_TYPE' END,
           CASE WHEN g.type IS NOT NULL THEN 'must be of the type ' || g.type
                WHEN g.name = 'sendAt' THEN 'is not a field here: give it as send_at'
                WHEN g.name = 'aggregate' THEN 'is not a field here: it has arguments of its own'
                WHEN g.name = 'recipient.cpfCnpj' THEN 'is for the HTTP API, which can encrypt it: give cpfCnpjHash'
                ELSE 'is not a field of an email' END
    FROM (
        SELECT e.key, e.value, x.type FROM jsonb_each(email) e
        LEFT JOIN (VALUES ('to', 'string'), ('cc', 'array'), ('bcc', 'array'), ('subject', 'string'), ('html', 'string'), ('text', 'string'), ('autoText', 'boolean'),
                          ('replyTo', 'string'), ('from', 'string'), ('headers', 'object'), ('tags', 'array'), ('recipient', 'object'),
                          ('priority', 'number'), ('delivery', 'string')) AS x (name, type) ON x.name = e.key
        UNION ALL
        SELECT 'recipient.' || e.key, e.value, x.type
        FROM jsonb_each(CASE jsonb_typeof(email -> 'recipient') WHEN 'object' THEN email -> 'recipient' ELSE '{}' END) e
        LEFT JOIN (VALUES ('recipientId', 'string'), ('externalId', 'string'), ('cpfCnpjHash', 'string'), ('razaoSocial', 'string'),
                          ('nome', 'string'), ('email', 'string')) AS x (name, type) ON x.name = e.key
        UNION ALL
        SELECT 'headers.' || left(e.key, 126), e.value, 'string'
        FROM jsonb_each(CASE jsonb_typeof(email -> 'headers') WHEN 'object' THEN email -> 'headers' ELSE '{}' END) e
        UNION ALL
        SELECT l.name || '[' || (e.n - 1) || ']', e.value, 'string'
        FROM (VALUES ('cc'), ('bcc'), ('tags')) AS l (name)
        CROSS JOIN LATERAL jsonb_array_elements(CASE jsonb_typeof(email -> l.name) WHEN 'array' THEN email -> l.name ELSE '[]' END)
                           WITH ORDINALITY AS e (value, n)
    ) AS g (name, value, type)
    WHERE g.type IS NULL OR jsonb_typeof(g.value) <> g.type
$$;

CREATE FUNCTION email_gateway_move(id uuid, moment timestamp with time zone, due timestamp with time zone, ttl interval) RETURNS void
    LANGUAGE sql
    SET search_path TO 'pg_catalog', 'public', 'pg_temp'
    SET standard_conforming_strings TO 'on'
    AS $$
    SELECT pg_notify('email_outbox', o.lane_id::text) FROM email_outbox o WHERE o.id = email_gateway_move.id AND o.next_at > due;
    WITH found AS MATERIALIZED (
        SELECT o.next_at AS was_due, due <> greatest(moment, o.next_at) AS changed FROM email_outbox o WHERE o.id = email_gateway_move.id
    ), moved AS (
        UPDATE email_outbox o SET status = 'PENDING', enqueued_at = NULL, next_at = due, expires_at = due + ttl FROM found f
        WHERE o.id = email_gateway_move.id RETURNING o.*, f.was_due, f.changed
    ), logged AS (
        INSERT INTO email_logs (outbox_id, company_id, recipient_id, recipient, subject, status, attempts, throttles, request_id, external_id, tags,
                                possible_duplicate, expires_at, created_at, event_seq, last_event, send_at)
        SELECT m.id, m.company_id, (m.payload #>> '{recipient,recipientId}')::uuid, m.payload ->> 'to', m.payload ->> 'subject', m.status, m.attempts, m.throttles,
               m.request_id, m.payload #>> '{recipient,externalId}', ARRAY(SELECT jsonb_array_elements_text(coalesce(m.payload -> 'tags', '[]'))),
               m.possible_duplicate, m.expires_at, m.created_at, 1, 'RESCHEDULED', m.next_at
        FROM moved m WHERE m.changed
        ON CONFLICT (outbox_id) DO UPDATE SET
            status = excluded.status, expires_at = excluded.expires_at, event_seq = email_logs.event_seq + 1, last_event = excluded.last_event, send_at = excluded.send_at
    )
    INSERT INTO email_events (email_log_id, seq, previous, type, metadata, created_at)
    SELECT m.id, coalesce(l.event_seq, 0) + 1, l.last_event, 'RESCHEDULED', jsonb_build_object('by', 'program', 'role', session_user,
               'oldSendAt', to_char(m.was_due AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"'),
               'newSendAt', to_char(m.next_at AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"')), moment
    FROM moved m LEFT JOIN LATERAL email_gateway_last_event(m.id) l ON true WHERE m.changed
$$;

CREATE FUNCTION email_gateway_normal_address(address text) RETURNS text
    LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE
    SET search_path TO 'pg_catalog', 'pg_temp'
    SET standard_conforming_strings TO 'on'
    AS $$
    SELECT lower(address)
$$;

CREATE FUNCTION email_gateway_present(email jsonb) RETURNS jsonb
    LANGUAGE plpgsql IMMUTABLE
    SET search_path TO 'pg_catalog', 'public', 'pg_temp'
    SET standard_conforming_strings TO 'on'
    AS $$
DECLARE
    body jsonb := jsonb_strip_nulls(email);
    name text;
    kept jsonb;
    seen text[];
BEGIN
    IF jsonb_typeof(body) IS DISTINCT FROM 'object' THEN
        RETURN body;
    END IF;
    body := email_gateway_without_blank(body);
    FOREACH name IN ARRAY '{recipient,headers}'::text[] LOOP
        IF jsonb_typeof(body -> name) = 'object' THEN
            body := body || jsonb_build_object(name, email_gateway_without_blank(body -> name));
        END IF;
    END LOOP;
    FOREACH name IN ARRAY '{subject,html,text}'::text[] LOOP -- what was saved with a byte order mark begins with it
        IF jsonb_typeof(body -> name) = 'string' AND starts_with(body ->> name, chr(65279)) THEN
            body := body || jsonb_build_object(name, ltrim(body ->> name, chr(65279)));
        END IF;
    END LOOP;
    seen := ARRAY[coalesce(lower(body ->> 'to'), '')];
    FOREACH name IN ARRAY '{cc,bcc,tags}'::text[] LOOP
        CONTINUE WHEN jsonb_typeof(body -> name) IS DISTINCT FROM 'array';
        SELECT coalesce(jsonb_agg(e.value ORDER BY e.n), '[]') INTO kept
        FROM (SELECT l.value, l.n, lower(l.value #>> '{}') AS text, row_number() OVER (PARTITION BY lower(l.value #>> '{}') ORDER BY l.n) AS nth
              FROM jsonb_array_elements(body -> name) WITH ORDINALITY AS l (value, n)) e
        WHERE jsonb_typeof(e.value) <> 'string'
           OR NOT email_gateway_is_blank(e.text) AND (name = 'tags' OR e.nth = 1 AND e.text NOT IN (SELECT unnest(seen)));
        body := body || jsonb_build_object(name, kept);
        IF name <> 'tags' THEN
            seen := seen || ARRAY(SELECT coalesce(lower(e.value #>> '{}'), '') FROM jsonb_array_elements(kept) e); -- NOT IN a list with a NULL is never true
        END IF;
    END LOOP;
    RETURN body;
END
$$;

CREATE FUNCTION email_gateway_record_delivery() RETURNS trigger
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'public', 'pg_temp'
    SET standard_conforming_strings TO 'on'
    SET plan_cache_mode TO 'force_generic_plan'
    AS $$
DECLARE
    -- An automatic reply counts less than every other final problem.
    ranks CONSTANT text[] := '{delayed,reply,rejected,bounced,complained}';
    happened CONSTANT timestamptz := coalesce(NEW.occurred_at, NEW.received_at);
    problem CONSTANT text := CASE NEW.kind WHEN 'DeliveryDelay' THEN 'delayed' WHEN 'Reject' THEN 'rejected' WHEN 'Rendering Failure' THEN 'rejected'
                                           WHEN 'Bounce' THEN 'bounced' WHEN 'Complaint' THEN 'complained' END;
    reason text;
    log record;
    mailing uuid;
    before text;
    after text;
    reply boolean := coalesce(NEW.kind = 'Bounce' AND NEW.payload ->> 'bounceType' = 'Transient' AND NEW.payload ->> 'bounceSubType' = 'General', false);
    replied boolean; -- the problem in the log is an automatic reply
    rank integer;
    known integer; -- the rank of the problem in the log
BEGIN
    IF problem = 'complained' AND NEW.payload ->> 'complaintFeedbackType' = 'not-spam' THEN
        RETURN NULL;
    END IF;
    SELECT l.company_id, l.recipient, l.delivered_at, l.delivery_problem, l.delivery_problem_at, l.delivery_problem_reason INTO log
    FROM email_logs l WHERE l.outbox_id = NEW.outbox_id FOR UPDATE;
    IF NOT FOUND THEN
        RETURN NULL;
    END IF;
    replied := coalesce(log.delivery_problem = 'bounced' AND split_part(log.delivery_problem_reason, ':', 1) = 'Transient/General', false);
    IF (reply OR replied) AND NOT coalesce(
        (SELECT jsonb_array_length(coalesce(nullif(o.payload -> 'cc', 'null'), '[]') || coalesce(nullif(o.payload -> 'bcc', 'null'), '[]')) = 0
         FROM email_outbox o WHERE o.id = NEW.outbox_id),
        EXISTS (SELECT FROM mailing_entries e WHERE e.id = NEW.outbox_id)) THEN
        reply := false;
        replied := false;
    END IF;
    before := CASE WHEN log.delivery_problem <> 'delayed' THEN log.delivery_problem WHEN log.delivered_at IS NOT NULL THEN 'delivered' END;
    IF problem IS NULL THEN
        IF log.delivered_at <= happened THEN
            RETURN NULL;
        END IF;
        IF replied THEN
            UPDATE email_logs SET delivered_at = happened, delivery_problem = NULL, delivery_problem_at = NULL, delivery_problem_reason = NULL
            WHERE outbox_id = NEW.outbox_id AND company_id = log.company_id;
            after := 'delivered';
        ELSE
            UPDATE email_logs SET delivered_at = happened WHERE outbox_id = NEW.outbox_id AND company_id = log.company_id;
            after := coalesce(before, 'delivered');
        END IF;
    ELSE
        IF log.recipient <> 'erased@erased.invalid' THEN
            reason := left(nullif(concat_ws(': ',
                nullif(concat_ws('/', NEW.payload ->> 'bounceType', NEW.payload ->> 'bounceSubType', NEW.payload ->> 'complaintFeedbackType',
                                 NEW.payload ->> 'complaintSubType', NEW.payload ->> 'delayType', NEW.payload ->> 'reason', NEW.payload ->> 'errorMessage'), ''),
                (SELECT min(r.value ->> 'diagnosticCode') FROM jsonb_array_elements(
                    CASE jsonb_typeof(NEW.payload -> 'recipients') WHEN 'array' THEN NEW.payload -> 'recipients' ELSE '[]' END) r)), ''), 500);
        END IF;
        rank := array_position(ranks, CASE WHEN reply THEN 'reply' ELSE problem END);
        known := array_position(ranks, CASE WHEN replied THEN 'reply' ELSE log.delivery_problem END);
        IF reply AND log.delivered_at IS NOT NULL OR rank < known
           OR rank = known AND (happened, coalesce(reason, '')) >= (log.delivery_problem_at, coalesce(log.delivery_problem_reason, '')) THEN
            RETURN NULL;
        END IF;
        UPDATE email_logs SET delivery_problem = problem, delivery_problem_at = happened, delivery_problem_reason = reason
        WHERE outbox_id = NEW.outbox_id AND company_id = log.company_id;
        after := CASE WHEN problem = 'delayed' THEN before ELSE problem END;
    END IF;
    IF after IS DISTINCT FROM before THEN
        SELECT e.mailing_id INTO mailing FROM mailing_entries e WHERE e.id = NEW.outbox_id;
        IF FOUND THEN
            INSERT INTO mailing_feedback (mailing_id, delivered, bounced, complained)
            SELECT mailing, (after = 'delivered')::integer - (was = 'delivered')::integer, (after = 'bounced')::integer - (was = 'bounced')::integer,
                   (after = 'complained')::integer - (was = 'complained')::integer
            FROM (SELECT coalesce(before, '') AS was) b;
        END IF;
    END IF;
    RETURN NULL;
END
$$;

CREATE FUNCTION email_gateway_record_reputation() RETURNS trigger
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'public', 'pg_temp'
    SET standard_conforming_strings TO 'on'
    SET plan_cache_mode TO 'force_generic_plan'
    AS $$
DECLARE
    -- The subtypes of bounces and complaints without an attempt to deliver: no receiver judged the email.
    unattempted CONSTANT text[] := '{OnAccountSuppressionList,OnTenantSuppressionList,EmailValidationSuppressed}';
BEGIN
    IF NEW.kind = 'Bounce' AND NEW.payload ->> 'bounceType' IS DISTINCT FROM 'Permanent'
       OR NEW.kind = 'Complaint' AND NEW.payload ->> 'complaintFeedbackType' = 'not-spam'
       OR coalesce(NEW.payload ->> 'bounceSubType', NEW.payload ->> 'complaintSubType') = ANY (unattempted) THEN
        RETURN NULL;
    END IF;
    INSERT INTO reputation_feedback (outbox_id, kind, company_id, sent_at)
    SELECT l.outbox_id, lower(NEW.kind), l.company_id, l.sent_at FROM email_logs l
    WHERE l.outbox_id = NEW.outbox_id AND l.sent_at > now() - interval '25 hours'
    ON CONFLICT (outbox_id, kind) DO NOTHING;
    RETURN NULL;
END
$$;

CREATE FUNCTION email_gateway_recount_scheduled(company uuid, pause interval) RETURNS void
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'public', 'pg_temp'
    SET standard_conforming_strings TO 'on'
    AS $$
BEGIN
    UPDATE quota_totals t SET scheduled_at = CASE WHEN n.scheduled IS NOT NULL THEN clock_timestamp() ELSE 'epoch' END, scheduled = coalesce(n.scheduled - n.added, t.scheduled)
    FROM (
        SELECT email_gateway_count_scheduled(company, q.scheduled) AS scheduled,
               (SELECT coalesce(sum(d.scheduled), 0) FROM quota_deltas d WHERE d.company_id = company) AS added
        FROM quota_totals q
        WHERE q.company_id = company AND q.scheduled <= 100000 AND q.scheduled_at IS DISTINCT FROM 'epoch'
          AND coalesce(q.scheduled_at + pause + greatest(q.scheduled, 0) * interval '10 us' < clock_timestamp(), true) OFFSET 0) n
    WHERE t.company_id = company;
END
$$;

CREATE FUNCTION email_gateway_reschedule(company uuid, aggregate_type text, aggregate_id text, event_type text, send_at timestamp with time zone, ttl interval DEFAULT '24:00:00'::interval) RETURNS TABLE(outbox_id uuid, moved boolean, status text)
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'public', 'pg_temp'
    SET standard_conforming_strings TO 'on'
    AS $$
DECLARE
    moment CONSTANT timestamptz := clock_timestamp();
    mail uuid;
    held boolean;
    tried uuid;
BEGIN
    PERFORM email_gateway_admit(company);
    PERFORM email_gateway_check_times(send_at, ttl);
    PERFORM email_gateway_check_active(company);
    LOOP
        SELECT a.outbox_id INTO mail FROM outbox_aggregates a
        WHERE a.company_id = company AND a.aggregate_type = email_gateway_reschedule.aggregate_type
          AND a.aggregate_id = email_gateway_reschedule.aggregate_id AND a.event_type = email_gateway_reschedule.event_type
        ORDER BY a.turn DESC LIMIT 1;
        IF NOT FOUND THEN
            RETURN;
        END IF;
        EXIT WHEN mail = tried;
        held := email_gateway_hold(mail);
        EXIT WHEN held;
        tried := mail; -- the transaction that was waited for may have replaced it
    END LOOP;
    IF held THEN
        INSERT INTO quota_deltas (company_id, transaction_writes) VALUES (company, email_gateway_transaction_writes(company) + 1);
        PERFORM email_gateway_schedule(company, mail, send_at);
        PERFORM email_gateway_move(mail, moment, greatest(moment, send_at), ttl);
    END IF;
    RETURN QUERY SELECT mail, held, email_gateway_status(mail);
END
$$;

CREATE FUNCTION email_gateway_schedule(company uuid, mail uuid, due timestamp with time zone) RETURNS void
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'public', 'pg_temp'
    SET standard_conforming_strings TO 'on'
    AS $$
DECLARE
    more bigint;
BEGIN
    IF due > now() THEN
        SELECT count(*) INTO more FROM email_outbox o
        WHERE o.id = mail AND o.company_id = company AND o.target = 'email:send' AND o.status IN ('PENDING', 'ENQUEUED', 'RETRY_SCHEDULED')
          AND (o.next_at <= greatest(now(), o.created_at) OR o.status <> 'PENDING');
        PERFORM email_gateway_check_quotas(company, more, 0, 0, false);
        INSERT INTO quota_deltas (company_id, scheduled) SELECT company, more WHERE more > 0;
    END IF;
END
$$;

CREATE FUNCTION email_gateway_scheduled(company uuid) RETURNS bigint
    LANGUAGE sql STABLE SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'public', 'pg_temp'
    SET standard_conforming_strings TO 'on'
    AS $$
    SELECT count(*) FROM dispatch_lanes l
    JOIN email_outbox o ON o.lane_id = l.id AND o.company_id = l.company_id AND o.status = 'PENDING' AND o.next_at > statement_timestamp()
    WHERE l.company_id = company AND l.queue IN ('email:send:high', 'email:send', 'email:send:low')
      AND (l.mailing_id IS NULL OR EXISTS (SELECT FROM email_logs g WHERE g.outbox_id = o.id AND g.company_id = company AND g.send_at > statement_timestamp()))
$$;

CREATE FUNCTION email_gateway_scheduled_page(company uuid, newest uuid, most bigint, INOUT lane bigint, INOUT due timestamp with time zone, INOUT mail uuid, OUT seen bigint, OUT scheduled bigint) RETURNS record
    LANGUAGE plpgsql STABLE SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'public', 'pg_temp'
    SET standard_conforming_strings TO 'on'
    AS $$
DECLARE
    l record;
    page record;
BEGIN
    seen := 0;
    scheduled := 0;
    FOR l IN
        SELECT d.id, d.mailing_id FROM dispatch_lanes d
        WHERE d.company_id = company AND d.id >= lane AND d.queue IN ('email:send:high', 'email:send', 'email:send:low') ORDER BY d.id
    LOOP
        IF l.id <> lane THEN
            lane := l.id;
            due := statement_timestamp();
            mail := 'ffffffff-ffff-ffff-ffff-ffffffffffff';
        END IF;
        WITH emails AS MATERIALIZED (
            SELECT o.next_at, o.id, o.status FROM email_outbox o
            WHERE o.lane_id = l.id AND o.company_id = company AND o.status IN ('PENDING', 'RETRY_SCHEDULED') AND (o.next_at, o.id) > (due, mail)
            ORDER BY o.next_at, o.id LIMIT most - seen
        ), final AS (
            SELECT e.next_at, e.id FROM emails e ORDER BY e.next_at DESC, e.id DESC LIMIT 1
        )
        SELECT count(*) AS seen, (SELECT f.next_at FROM final f) AS due, (SELECT f.id FROM final f) AS mail,
               count(*) FILTER (WHERE e.status = 'PENDING' AND e.id < newest AND (l.mailing_id IS NULL OR EXISTS (
                   SELECT FROM email_logs g WHERE g.outbox_id = e.id AND g.company_id = company AND g.send_at > statement_timestamp()))) AS scheduled
        INTO page FROM emails e;
        IF page.seen > 0 THEN
            seen := seen + page.seen;
            scheduled := scheduled + page.scheduled;
            due := page.due;
            mail := page.mail;
        END IF;
        EXIT WHEN seen = most;
    END LOOP;
END
$$;

CREATE FUNCTION email_gateway_shows(html text) RETURNS boolean
    LANGUAGE plpgsql IMMUTABLE STRICT PARALLEL SAFE
    SET search_path TO 'pg_catalog', 'public', 'pg_temp'
    SET standard_conforming_strings TO 'on'
    AS $_$
DECLARE
    rest text;
    element text;
BEGIN
    IF length(html) > 16384 OR html ~* '<(img|image|svg|picture|video|audio|canvas|object|embed|iframe|hr|input|select|button|textarea|meter|progress|math|v:[a-z]+)[\s/>]'
       OR html ~* '<[a-z][^>]*\s(background\s*=|style\s*=[^>]*url\()' THEN
        RETURN true;
    END IF;
    rest := regexp_replace(html, '<!--.*?(-->|$)', '', 'g');
    FOREACH element IN ARRAY '{title,style,script,template}'::text[] LOOP
        rest := regexp_replace(rest, '<' || element || '[\s>].*?(</' || element || '\s*>|$)', '', 'gi');
    END LOOP;
    rest := regexp_replace(rest, '</?[a-z!][^>]*>', '', 'gi');
    rest := regexp_replace(rest,
        '&(nbsp|zwnj|zwj|shy|ensp|emsp|thinsp|lrm|rlm|#0*(9|10|13|32|160|173|820[0-7]|8288|12288|65279)|#x0*(9|a|d|20|a0|ad|200[0-9a-f]|2060|3000|feff))(;|\M)', '', 'gi');
    RETURN NOT email_gateway_is_blank(rest);
END
$_$;

CREATE FUNCTION email_gateway_status(id uuid) RETURNS text
    LANGUAGE plpgsql
    SET search_path TO 'pg_catalog', 'public', 'pg_temp'
    SET standard_conforming_strings TO 'on'
    AS $_$
DECLARE
    state text;
BEGIN
    SELECT o.status INTO state FROM email_outbox o WHERE o.id = email_gateway_status.id;
    IF NOT FOUND THEN
        EXECUTE 'SELECT l.status FROM email_logs l WHERE l.outbox_id = $1' INTO state USING id;
    END IF;
    RETURN state;
END
$_$;

CREATE FUNCTION email_gateway_take_key(company uuid, aggregate_type text, aggregate_id text, event_type text, newcomer uuid) RETURNS uuid
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'public', 'pg_temp'
    SET standard_conforming_strings TO 'on'
    AS $$
DECLARE
    newest record;
    state text;
    awaited uuid;
BEGIN
    LOOP
        SELECT a.outbox_id, a.turn, a.xmax <> '0' AS locked INTO newest FROM outbox_aggregates a
        WHERE a.company_id = company AND a.aggregate_type = email_gateway_take_key.aggregate_type
          AND a.aggregate_id = email_gateway_take_key.aggregate_id AND a.event_type = email_gateway_take_key.event_type
        ORDER BY a.turn DESC LIMIT 1;
        state := email_gateway_status(newest.outbox_id);
        IF newest.outbox_id <> newcomer AND newest.locked AND awaited IS DISTINCT FROM newest.outbox_id
           AND state IN ('PENDING', 'ENQUEUED', 'RETRY_SCHEDULED') THEN
            awaited := newest.outbox_id;
            PERFORM email_gateway_await(awaited);
            CONTINUE;
        END IF;
        IF newest.outbox_id = newcomer OR state <> 'CANCELLED' THEN
            RETURN newest.outbox_id; -- newcomer: by a run of the caller's statement whose answer was lost
        END IF;
        UPDATE email_outbox o SET replaced_at = coalesce(o.replaced_at, now()) WHERE o.id = newest.outbox_id AND o.status = 'CANCELLED';
        IF NOT FOUND AND EXISTS (SELECT FROM email_outbox o WHERE o.id = newest.outbox_id) THEN
            CONTINUE; -- a retry was first, and its commit is seen now
        END IF;
        INSERT INTO outbox_aggregates (company_id, aggregate_type, aggregate_id, event_type, turn, outbox_id)
        VALUES (company, email_gateway_take_key.aggregate_type, email_gateway_take_key.aggregate_id, email_gateway_take_key.event_type,
                coalesce(newest.turn, 0) + 1, newcomer)
        ON CONFLICT DO NOTHING;
        IF FOUND THEN
            RETURN newcomer;
        END IF; -- else another transaction's commit was first, and is seen now
    END LOOP;
END
$$;

CREATE FUNCTION email_gateway_transaction_writes(company uuid) RETURNS bigint
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'public', 'pg_temp'
    SET standard_conforming_strings TO 'on'
    AS $$
DECLARE
    most CONSTANT bigint := 10000;
    written bigint;
BEGIN
    SELECT d.transaction_writes INTO written FROM quota_deltas d
    WHERE d.company_id = company AND d.xid = pg_current_xact_id() AND d.transaction_writes IS NOT NULL
    ORDER BY d.id DESC LIMIT 1;
    IF written >= most THEN
        RAISE EXCEPTION 'the transaction has enqueued, moved or withdrawn % emails of the company, which is the limit: commit it, and go on in another transaction', written
            USING ERRCODE = 'EG413', DETAIL = jsonb_build_object('limit', most);
    END IF;
    RETURN coalesce(written, 0);
END
$$;

CREATE FUNCTION email_gateway_use(company uuid, of_mailings boolean) RETURNS TABLE(quota text, own boolean, most bigint, used bigint, resets_at timestamp with time zone)
    LANGUAGE sql STABLE SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'public', 'pg_temp'
    SET standard_conforming_strings TO 'on'
    AS $$
    WITH today AS (
        SELECT (now() AT TIME ZONE 'UTC')::date AS day, date_trunc('day', now(), 'UTC') AS begun, ((now() AT TIME ZONE 'UTC')::date + 1)::timestamp AT TIME ZONE 'UTC' AS over
    ), counted AS (
        SELECT greatest(0, CASE WHEN t.day = y.day THEN t.emails ELSE 0 END + d.emails) AS emails,
               greatest(0, coalesce(t.scheduled, 0) + d.scheduled) AS scheduled, greatest(0, coalesce(t.body_bytes, 0) + d.body_bytes) AS body_bytes, greatest(0, coalesce(t.file_bytes, 0) + d.file_bytes) AS file_bytes,
               greatest(0, coalesce(t.recipients, 0) + d.recipients) AS recipients, greatest(0, coalesce(t.suppressions, 0) + d.suppressions) AS suppressions
        FROM today y LEFT JOIN quota_totals t ON t.company_id = company
        CROSS JOIN LATERAL (
            SELECT coalesce(sum(d.emails) FILTER (WHERE d.day = y.day), 0)::bigint AS emails, coalesce(sum(d.scheduled), 0)::bigint AS scheduled,
                   coalesce(sum(d.body_bytes), 0)::bigint AS body_bytes, coalesce(sum(d.file_bytes), 0)::bigint AS file_bytes, coalesce(sum(d.recipients), 0)::bigint AS recipients,
                   coalesce(sum(d.suppressions), 0)::bigint AS suppressions
            FROM (
                SELECT n.* FROM quota_deltas n
                WHERE n.company_id = company AND n.xid >= CASE WHEN pg_snapshot_xmax(t.folded) <= pg_snapshot_xmax(pg_current_snapshot()) THEN pg_snapshot_xmax(t.folded) ELSE '0' END
                UNION ALL
                SELECT n.* FROM pg_snapshot_xip(t.folded) x (xid)
                CROSS JOIN LATERAL (SELECT * FROM quota_deltas n WHERE n.company_id = company AND n.xid = x.xid OFFSET 0) n -- no join, which would read all of the company
                WHERE pg_snapshot_xmax(t.folded) <= pg_snapshot_xmax(pg_current_snapshot())
            ) d
        ) d
    )
    SELECT x.quota, x.own IS NOT NULL, coalesce(x.own, x.usual), x.used, x.resets_at
    FROM quota_defaults q CROSS JOIN today y CROSS JOIN counted n LEFT JOIN company_quotas c ON c.company_id = company
    CROSS JOIN LATERAL (VALUES
        ('scheduled_emails', c.scheduled_emails, q.scheduled_emails, n.scheduled, NULL::timestamptz),
        ('emails_per_day', c.emails_per_day, q.emails_per_day, n.emails, y.over),
        ('stored_body_bytes', c.stored_body_bytes, q.stored_body_bytes, n.body_bytes, NULL),
        ('recipients', c.recipients, q.recipients, n.recipients, NULL),
        ('suppressions', c.suppressions, q.suppressions, n.suppressions, NULL),
        ('stored_file_bytes', c.stored_file_bytes, q.stored_file_bytes, CASE WHEN of_mailings THEN (
            SELECT coalesce(sum(m.file_bytes), 0)::bigint FROM mailings m WHERE m.company_id = company AND m.file_deleted_at IS NULL AND m.file_bytes > 0) + n.file_bytes ELSE 0 END, NULL),
        ('running_mailings', c.running_mailings, q.running_mailings, CASE WHEN of_mailings THEN (
            SELECT count(*) FROM mailings m WHERE m.company_id = company AND m.status IN ('QUEUED', 'PENDING', 'PROCESSING', 'SENDING')) ELSE 0 END, NULL),
        ('mailing_rows_per_day', c.mailing_rows_per_day, q.mailing_rows_per_day, CASE WHEN of_mailings THEN (
            SELECT coalesce(sum(m.total_lines), 0) FROM mailings m WHERE m.company_id = company AND m.id >= first_id_at(y.begun)) ELSE 0 END, y.over)
    ) AS x (quota, own, usual, used, resets_at)
$$;

CREATE FUNCTION email_gateway_withdraw(id uuid) RETURNS void
    LANGUAGE sql
    SET search_path TO 'pg_catalog', 'public', 'pg_temp'
    SET standard_conforming_strings TO 'on'
    AS $$
    WITH moved AS (
        UPDATE email_outbox o SET status = 'CANCELLED', processed_at = now() WHERE o.id = email_gateway_withdraw.id RETURNING o.*
    ), logged AS (
        INSERT INTO email_logs (outbox_id, company_id, recipient_id, recipient, subject, status, attempts, throttles, request_id, external_id, tags,
                                possible_duplicate, expires_at, created_at, event_seq, last_event)
        SELECT m.id, m.company_id, (m.payload #>> '{recipient,recipientId}')::uuid, m.payload ->> 'to', m.payload ->> 'subject', m.status, m.attempts, m.throttles,
               m.request_id, m.payload #>> '{recipient,externalId}', ARRAY(SELECT jsonb_array_elements_text(coalesce(m.payload -> 'tags', '[]'))),
               m.possible_duplicate, m.expires_at, m.created_at, 1, 'CANCELLED'
        FROM moved m
        ON CONFLICT (outbox_id) DO UPDATE SET
            status = excluded.status, attempts = excluded.attempts, throttles = excluded.throttles, possible_duplicate = excluded.possible_duplicate,
            expires_at = excluded.expires_at, sent_at = NULL, failed_at = NULL, event_seq = email_logs.event_seq + 1, last_event = 'CANCELLED'
    )
    INSERT INTO email_events (email_log_id, seq, previous, type, metadata, created_at)
    SELECT m.id, coalesce(l.event_seq, 0) + 1, l.last_event, 'CANCELLED', jsonb_build_object('by', 'program', 'role', session_user), clock_timestamp()
    FROM moved m LEFT JOIN LATERAL email_gateway_last_event(m.id) l ON true
$$;

CREATE FUNCTION email_gateway_without_blank(object jsonb) RETURNS jsonb
    LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE
    SET search_path TO 'pg_catalog', 'public', 'pg_temp'
    SET standard_conforming_strings TO 'on'
    AS $$
    SELECT coalesce(jsonb_object_agg(e.key, e.value), '{}') FROM jsonb_each(object) e
    WHERE jsonb_typeof(e.value) <> 'string' OR NOT email_gateway_is_blank(e.value #>> '{}')
$$;

CREATE FUNCTION first_id_at(at timestamp with time zone) RETURNS uuid
    LANGUAGE sql STABLE STRICT PARALLEL SAFE
    SET standard_conforming_strings TO 'on'
    AS $$
    SELECT (lpad(to_hex(greatest(0, floor(extract(epoch FROM at) * 1000))::bigint), 12, '0') || repeat('0', 20))::uuid
$$;

CREATE FUNCTION first_present_step(anyelement, anyelement) RETURNS anyelement
    LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE
    SET standard_conforming_strings TO 'on'
    AS $_$SELECT $1$_$;

CREATE FUNCTION hold_settling(mailing uuid) RETURNS boolean
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'public', 'pg_temp'
    SET standard_conforming_strings TO 'on'
    AS $$
BEGIN
    PERFORM FROM owner_locks l WHERE l.name = 'settling' AND l.slot = get_byte(uuid_send(mailing), 15) FOR UPDATE SKIP LOCKED;
    RETURN FOUND;
END
$$;

CREATE FUNCTION make_log_partition(of_log text, months_ahead integer) RETURNS text
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'public', 'pg_temp'
    SET lock_timeout TO '200ms'
    SET standard_conforming_strings TO 'on'
    AS $_$
DECLARE
    rest CONSTANT text := of_log || '_default';
    key text := CASE of_log WHEN 'email_logs' THEN 'outbox_id' WHEN 'email_events' THEN 'email_log_id' END;
    month record;
BEGIN
    IF key IS NULL OR months_ahead NOT BETWEEN 0 AND 120 THEN
        RAISE EXCEPTION 'no partitions of % are made % months ahead', of_log, months_ahead;
    END IF;
    PERFORM FROM owner_locks l WHERE l.name = of_log AND l.slot = 0 FOR UPDATE SKIP LOCKED;
    IF NOT FOUND THEN
        RETURN NULL;
    END IF;
    SELECT * INTO month FROM missing_log_partition(of_log, months_ahead);
    IF month.name IS NULL THEN
        RETURN NULL;
    END IF;
    IF month.too_late OR month.proof IS NOT NULL AND NOT EXISTS (
        SELECT FROM pg_constraint c WHERE c.conrelid = rest::regclass AND c.conname = month.proof AND c.convalidated)
    THEN
        RAISE EXCEPTION '% cannot be made: % is too large to be searched for rows of this month', month.name, rest;
    END IF;
    EXECUTE format('CREATE TABLE %I (LIKE %I INCLUDING ALL EXCLUDING INDEXES) WITH (fillfactor = %s)', month.name, of_log, CASE of_log WHEN 'email_logs' THEN 45 ELSE 100 END);
    -- ATTACH makes the indexes. The primary key comes first: while the partition is empty all
    -- of them seem equally good for finding a row by its id, and then the planner takes the
    -- oldest. Its plan is still in use when the month begins.
    EXECUTE format('ALTER TABLE %I ADD PRIMARY KEY (%s)', month.name, CASE of_log WHEN 'email_logs' THEN 'outbox_id' ELSE 'email_log_id, seq' END);
    EXECUTE format('LOCK TABLE %I IN ACCESS EXCLUSIVE MODE', rest);
    IF month.proof IS NULL THEN
        EXECUTE format('WITH early AS (DELETE FROM %I WHERE %I >= $1 AND %I < $2 RETURNING *) INSERT INTO %I SELECT * FROM early', rest, key, key, month.name)
            USING month.first_id, month.end_id;
    END IF;
    EXECUTE format('ALTER TABLE %I ATTACH PARTITION %I FOR VALUES FROM (%L) TO (%L)', of_log, month.name, month.first_id, month.end_id);
    EXECUTE format('ALTER TABLE %I DROP CONSTRAINT IF EXISTS %I', rest, replace(month.name, of_log, of_log || '_without'));
    RETURN month.name;
END
$_$;

CREATE FUNCTION missing_log_partition(of_log text, months_ahead integer, OUT name text, OUT first_id uuid, OUT end_id uuid, OUT proof text, OUT too_late boolean) RETURNS record
    LANGUAGE plpgsql STABLE
    SET search_path TO 'public', 'pg_temp'
    SET standard_conforming_strings TO 'on'
    AS $$
DECLARE
    large CONSTANT boolean := pg_relation_size((of_log || '_default')::regclass) > 64 * 1024 * 1024;
BEGIN
    SELECT of_log || to_char(m.utc, '"_"YYYY_MM'), first_id_at(m.utc AT TIME ZONE 'UTC'), first_id_at((m.utc + interval '1 month') AT TIME ZONE 'UTC'),
           CASE WHEN large AND NOT m.late THEN of_log || to_char(m.utc, '"_without_"YYYY_MM') END, large AND m.late
    INTO missing_log_partition.name, missing_log_partition.first_id, missing_log_partition.end_id, proof, too_late
    FROM (SELECT u.utc, u.utc < now() AT TIME ZONE 'UTC' + interval '2 days' AS late
          FROM generate_series(0, months_ahead) n CROSS JOIN LATERAL (SELECT date_trunc('month', now() AT TIME ZONE 'UTC') + n * interval '1 month' AS utc) u) m
    WHERE NOT EXISTS (
        SELECT FROM log_partitions p
        WHERE p.log = of_log AND coalesce(p.first_id <= first_id_at(m.utc AT TIME ZONE 'UTC'), true) AND p.end_id > first_id_at(m.utc AT TIME ZONE 'UTC'))
    ORDER BY large AND m.late, m.utc LIMIT 1;
END
$$;

CREATE FUNCTION prove_log_partition(of_log text, months_ahead integer) RETURNS boolean
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'public', 'pg_temp'
    SET lock_timeout TO '200ms'
    SET standard_conforming_strings TO 'on'
    AS $_$
DECLARE
    rest CONSTANT text := of_log || '_default';
    key text := CASE of_log WHEN 'email_logs' THEN 'outbox_id' WHEN 'email_events' THEN 'email_log_id' END;
    month record;
    other name;
    known boolean;
BEGIN
    IF key IS NULL OR months_ahead NOT BETWEEN 0 AND 120 THEN
        RAISE EXCEPTION 'no partitions of % are made % months ahead', of_log, months_ahead;
    END IF;
    PERFORM FROM owner_locks l WHERE l.name = of_log AND l.slot = 0 FOR UPDATE SKIP LOCKED;
    IF NOT FOUND THEN
        RETURN false;
    END IF;
    SELECT * INTO month FROM missing_log_partition(of_log, months_ahead);
    FOR other IN
        SELECT c.conname FROM pg_constraint c
        WHERE c.conrelid = rest::regclass AND starts_with(c.conname::text, of_log || '_without_') AND c.conname IS DISTINCT FROM month.proof
    LOOP
        EXECUTE format('ALTER TABLE %I DROP CONSTRAINT %I', rest, other);
    END LOOP;
    IF month.proof IS NULL THEN
        RETURN false;
    END IF;
    SELECT c.convalidated INTO known FROM pg_constraint c WHERE c.conrelid = rest::regclass AND c.conname = month.proof;
    IF known IS NULL THEN
        EXECUTE format('SELECT EXISTS (SELECT FROM %I WHERE %I >= $1 AND %I < $2)', rest, key, key) INTO known USING month.first_id, month.end_id;
        IF known THEN -- a proof would fail; make_log_partition reports it
            RETURN false;
        END IF;
        EXECUTE format('ALTER TABLE %I ADD CONSTRAINT %I CHECK (%I < %L::uuid OR %I >= %L::uuid) NOT VALID', rest, month.proof, key, month.first_id, key, month.end_id);
        RETURN true;
    END IF;
    IF NOT known THEN
        BEGIN
            EXECUTE format('ALTER TABLE %I VALIDATE CONSTRAINT %I', rest, month.proof);
        EXCEPTION WHEN check_violation THEN -- make_log_partition reports it
            EXECUTE format('ALTER TABLE %I DROP CONSTRAINT %I', rest, month.proof);
        END;
    END IF;
    RETURN false;
END
$_$;
