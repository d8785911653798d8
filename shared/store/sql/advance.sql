-- Generated from advance.sql.tmpl and Go's description of the parameters by go generate: do not edit.
--
-- Moves a group of emails. It locks each email's row of email_outbox, decides by the row and the guard whether the email
-- moves, and writes the row, log, events, recipient, dead letter and mailing entry of those that move, in one commit.
--
-- The order: free, free_recipients, locked_recipients and found lock and read; moved decides and updates; logged, timeline,
-- merged, dead, revived, entry, reopened and marked write the other tables; the last SELECT returns a result for each email.
--
-- An email whose row another transaction has locked is skipped and returned with locked = true, so that no other email of
-- the group waits for it. advance_waiting.sql is the same statement for a single caller, which waits for the row.
-- Every other lock (of a log, an entry, a recipient, or a key that another transaction is inserting) is waited for until
-- lock_timeout, which ends the statement. The group is then written again.
--
-- Lane, company and provider_gate are read without a lock: a pause takes effect for every claim that begins after it.
-- The log is read without a lock too, as it was when the statement began. If another transition committed while this
-- one waited for the row, then its events do not fit behind those of the other one, and Postgres refuses them (see
-- isEventsKey): nothing is decided on a log or a dead letter that is out of date.
--
-- Parameters; from $7 on, each array has one element per row:
--   $1   lock_timeout         text
--   $2   count                bigint
--   $3   first_id             uuid
--   $4   last_id              uuid
--   $5   lease_ms             double precision
--   $6   create_from          uuid
--   $7   id                   uuid[]
--   $8   guard                text[]
--   $9   token                uuid[]
--   $10  status               text[]
--   $11  events               jsonb[]
--   $12  add_attempts         bigint[]
--   $13  add_throttles        bigint[]
--   $14  waits                text[]
--   $15  delay_ms             bigint[]
--   $16  renew_ms             bigint[]
--   $17  outcome_unknown      bool[]
--   $18  possible_duplicate   bool[]
--   $19  error_code           text[]
--   $20  error_reason         text[]
--   $21  ses_message_id       text[]
--   $22  duration_ms          bigint[]
--   $23  dead_letter          bool[]
--   $24  recipient_id         uuid[]
--   $25  external_id          text[]
--   $26  cpf_cnpj_hash        text[]
--   $27  razao_social         text[]
--   $28  nome                 text[]
--   $29  email                text[]
--   $30  give_way             bool[]
--   $31  skip_company         uuid[]
--
-- EXPLAIN EXECUTE advance ('0', 0, '00000000-0000-0000-0000-000000000000', '00000000-0000-0000-0000-000000000000', 0, '00000000-0000-0000-0000-000000000000', '{}', '{}', '{}', '{}', '{}', '{}', '{}', '{}', '{}', '{}', '{}', '{}', '{}', '{}', '{}', '{}', '{}', '{}', '{}', '{}', '{}', '{}', '{}', '{}', '{}');
WITH
-- free has those of the emails that give way whose row of outbox_aggregates (by outbox_aggregates_outbox) could be locked
-- (FOR SHARE). A program that moves or cancels an email locks this row first, until its transaction ends. Emails that are
-- not free stay as they are, so that an open transaction of a program does not delay the group.
free AS MATERIALIZED (
    SELECT a.outbox_id
    FROM (SELECT * FROM unnest($7::uuid[], $30::bool[]) AS t(id, give_way) WHERE give_way LIMIT $2 /* count */) t
    JOIN outbox_aggregates a ON a.outbox_id = t.id
    FOR SHARE OF a SKIP LOCKED
),

-- free_recipients locks the recipients (by primary key) of emails with a skip_company, if no other transaction has.
free_recipients AS MATERIALIZED (
    SELECT r.id
    FROM (SELECT * FROM unnest($24::uuid[], $31::uuid[]) AS t(recipient_id, skip_company) WHERE skip_company IS NOT NULL LIMIT $2 /* count */) t
    JOIN recipients r ON r.id = t.recipient_id AND r.company_id = t.skip_company
    FOR NO KEY UPDATE OF r SKIP LOCKED
),

-- locked_recipients are the recipients of these emails that exist and could not be locked (by primary key, no lock).
locked_recipients AS MATERIALIZED (
    SELECT r.id
    FROM (SELECT * FROM unnest($24::uuid[], $31::uuid[]) AS t(recipient_id, skip_company) WHERE skip_company IS NOT NULL LIMIT $2 /* count */) t
    JOIN recipients r ON r.id = t.recipient_id AND r.company_id = t.skip_company
    WHERE r.id NOT IN (SELECT id FROM free_recipients)
),

-- found locks the emails' rows of email_outbox (by primary key, in id order) and reads what the guards ask for:
-- dispatch_lanes, companies, provider_gate, suppressions and email_logs by primary key, and for a replay
-- outbox_aggregates (by outbox_aggregates_outbox and outbox_aggregates_pkey). replaced: the email was cancelled, and a newer
-- email has taken its aggregate and event type. A replay is then refused: there would be two emails of that key, and a
-- cancel would find only one. The EXISTS does not see a newer email that was accepted since this statement began; the column
-- replaced_at, read under the row's lock, does. A replay sends no email before its send_at, the time that the sender has
-- last chosen: it may have been cancelled before that time.
--
-- set_config sets the lock_timeout of this statement and of its transaction. The CASE in the join, here and in moved, keeps
-- the planner from beginning with email_outbox after statistics of a few rows. The CASE around first_id and last_id hides
-- their values from it: only the executor leaves out partitions of email_logs. With bare parameters the planner would leave
-- them out, find the plan for these values cheaper than the plan for all, and plan the prepared statement anew each time,
-- which takes longer than to run it. The log is found by BETWEEN and ORDER BY, because only the primary key has that order.
-- With = the planner estimated the same cost for indexes whose last column is outbox_id, if the month's partition had been
-- analyzed while it was empty: until the next ANALYZE each email read such an index whole.
found AS MATERIALIZED (
    SELECT t.*, o.status AS was, o.attempts, o.throttles, o.next_at, o.expires_at, o.lease_until, o.cpf_cnpj_enc, lane.mailing_id,
           coalesce(o.claim_token = t.token, false) AS same_token,
           lane.paused_at IS NULL AND lane.held_at IS NULL AND coalesce(lane.parked_until <= now(), true)
               AND c.suspended_at IS NULL AND c.id IS NOT NULL AND (c.mailings_paused_at IS NULL OR lane.mailing_id IS NULL) AS open,
           coalesce(o.id = (SELECT probe_id FROM provider_gate WHERE id = 1 AND is_open AND held_at IS NULL), false) AS probe,
           t.guard = 'claim' AND EXISTS (
               SELECT FROM suppressions s
               WHERE s.company_id = o.company_id AND s.address = lower(o.payload ->> 'to')
                 AND (s.reason <> 'UNSUBSCRIBE' OR lane.mailing_id IS NOT NULL)) AS suppressed,
           o.body_erased_at IS NOT NULL AS erased,
           t.guard = 'replay' AND (o.replaced_at IS NOT NULL OR EXISTS (
               SELECT FROM outbox_aggregates a JOIN outbox_aggregates later USING (company_id, aggregate_type, aggregate_id, event_type)
               WHERE a.outbox_id = o.id AND later.turn > a.turn)) AS replaced,
           CASE WHEN t.guard = 'replay' THEN greatest(l.send_at, now()) ELSE now() END AS start_at,
           coalesce(l.event_seq, 0) AS seq, l.last_event
    FROM (
        SELECT * FROM unnest(
            $7::uuid[],    -- id
            $8::text[],    -- guard
            $9::uuid[],    -- token
            $10::text[],   -- status
            $11::jsonb[],  -- events
            $12::bigint[], -- add_attempts
            $13::bigint[], -- add_throttles
            $14::text[],   -- waits
            $15::bigint[], -- delay_ms
            $16::bigint[], -- renew_ms
            $17::bool[],   -- outcome_unknown
            $18::bool[],   -- possible_duplicate
            $19::text[],   -- error_code
            $20::text[],   -- error_reason
            $21::text[],   -- ses_message_id
            $22::bigint[], -- duration_ms
            $23::bool[],   -- dead_letter
            $24::uuid[],   -- recipient_id
            $25::text[],   -- external_id
            $26::text[],   -- cpf_cnpj_hash
            $27::text[],   -- razao_social
            $28::text[],   -- nome
            $29::text[],   -- email
            $30::bool[],   -- give_way
            $31::uuid[]    -- skip_company
        ) AS t(id, guard, token, status, events, add_attempts, add_throttles, waits, delay_ms, renew_ms,
               outcome_unknown, possible_duplicate, error_code, error_reason, ses_message_id, duration_ms,
               dead_letter, recipient_id, external_id, cpf_cnpj_hash, razao_social, nome, email, give_way,
               skip_company)
        WHERE (NOT give_way OR id = ANY (ARRAY(SELECT outbox_id FROM free)))
          AND (skip_company IS NULL OR (recipient_id = ANY (ARRAY(SELECT id FROM locked_recipients))) IS NOT TRUE)
          AND (SELECT set_config('lock_timeout', $1 /* lock_timeout */, true)) IS NOT NULL
        LIMIT $2 /* count */
    ) t
    JOIN email_outbox o ON o.id = t.id AND CASE WHEN t.id IS NOT NULL THEN o.target = 'email:send' END
    LEFT JOIN dispatch_lanes lane ON lane.id = o.lane_id
    LEFT JOIN companies c ON c.id = lane.company_id
    LEFT JOIN LATERAL (
        SELECT event_seq, last_event, send_at FROM email_logs
        WHERE outbox_id BETWEEN o.id AND o.id
          AND outbox_id >= CASE WHEN now() IS NOT NULL THEN $3::uuid /* first_id */ END
          AND outbox_id <= CASE WHEN now() IS NOT NULL THEN $4::uuid /* last_id */ END
        ORDER BY outbox_id LIMIT 1
    ) l ON true
    ORDER BY o.id FOR UPDATE OF o SKIP LOCKED
),

-- moved writes the rows of email_outbox (by primary key, locked by found) of the emails whose guard holds, and returns
-- what the CTEs below need. The guards are explained in transition.go. An email of a mailing has no deadline before its
-- first attempt, also after a replay or if that attempt is undone: a large mailing, or one that was paused, may take days.
moved AS (
    UPDATE email_outbox o SET
        status = f.status,
        attempts = CASE WHEN f.guard = 'replay' THEN 0 ELSE o.attempts + f.add_attempts END,
        throttles = CASE WHEN f.guard = 'replay' THEN 0 ELSE o.throttles + f.add_throttles END,
        next_at = CASE WHEN f.waits <> '' THEN f.start_at + f.delay_ms * interval '1 ms' ELSE o.next_at END,
        enqueued_at = CASE f.waits WHEN 'queue' THEN coalesce(o.enqueued_at, now()) WHEN 'outbox' THEN NULL ELSE o.enqueued_at END,
        expires_at = CASE WHEN f.mailing_id IS NOT NULL AND f.waits <> '' AND (f.guard = 'replay' OR o.attempts + f.add_attempts = 0) THEN now() + interval '10 years'
                          WHEN f.renew_ms > 0 AND (f.guard = 'replay' OR f.mailing_id IS NOT NULL AND o.attempts = 0)
                          THEN f.start_at + f.renew_ms * interval '1 ms'
                          ELSE o.expires_at END,
        last_error = coalesce(f.error_code || coalesce(': ' || f.error_reason, ''), o.last_error),
        processed_at = CASE WHEN f.status IN ('SENT', 'FAILED', 'EXPIRED', 'CANCELLED', 'SUPPRESSED') THEN now() END,
        claim_token = coalesce(f.token, o.claim_token),
        lease_until = CASE WHEN f.status = 'PROCESSING' THEN now() + $5 /* lease_ms */ * interval '1 ms' END,
        outcome_unknown = (o.outcome_unknown OR f.outcome_unknown) AND f.guard <> 'feedback',
        possible_duplicate = o.possible_duplicate OR f.possible_duplicate OR (f.guard = 'replay' AND o.outcome_unknown)
                             OR (f.status = 'SENT' AND f.was IN ('PROCESSING', 'OUTCOME_UNKNOWN') AND NOT f.same_token),
        cpf_cnpj_enc = CASE WHEN f.recipient_id IS NULL THEN o.cpf_cnpj_enc END
    FROM found f
    WHERE o.id = f.id AND CASE WHEN f.id IS NOT NULL THEN o.target = 'email:send' END AND CASE f.guard
        WHEN 'claim' THEN f.was IN ('PENDING', 'ENQUEUED', 'RETRY_SCHEDULED') AND f.open
                      AND (f.probe OR coalesce((SELECT NOT is_open AND held_at IS NULL FROM provider_gate WHERE id = 1), true))
                      AND f.next_at <= now() + interval '1 s' AND f.expires_at > now() AND NOT f.suppressed
        WHEN 'attempt' THEN (f.was = 'PROCESSING' AND f.same_token) OR (f.status = 'SENT' AND f.was <> 'SENT')
                      OR (f.was = 'OUTCOME_UNKNOWN' AND f.same_token AND f.status IN ('FAILED', 'RETRY_SCHEDULED') AND NOT f.outcome_unknown)
        WHEN 'feedback' THEN f.was <> 'SENT'
        WHEN 'abandoned' THEN f.was = 'PROCESSING' AND f.same_token AND f.lease_until NOT BETWEEN now() AND now() + interval '2 minutes'
        WHEN 'unresolved' THEN f.was = 'OUTCOME_UNKNOWN' AND f.same_token AND f.next_at <= now()
        WHEN 'open' THEN f.was IN ('PENDING', 'ENQUEUED', 'RETRY_SCHEDULED')
        WHEN 'overdue' THEN f.was IN ('PENDING', 'ENQUEUED', 'RETRY_SCHEDULED') AND f.expires_at <= now()
        WHEN 'replay' THEN f.was IN ('FAILED', 'EXPIRED', 'CANCELLED') AND NOT f.erased AND NOT f.replaced
                       AND NOT EXISTS (SELECT FROM mailings m WHERE m.id = f.mailing_id AND m.status = 'CANCELLED')
                       AND NOT EXISTS (SELECT FROM dead_letters d
                                       WHERE d.id = (f.events #>> '{0,metadata,deadLetterId}')::uuid AND d.outbox_id = f.id AND d.resolved_at IS NOT NULL)
        ELSE false END
    RETURNING o.id, o.company_id, o.request_id, o.payload, o.status, o.attempts, o.throttles, o.possible_duplicate, o.expires_at, o.created_at,
              f.events, f.seq, f.last_event, f.error_code, f.error_reason, f.ses_message_id, f.duration_ms,
              f.dead_letter, f.recipient_id, f.external_id, f.cpf_cnpj_hash, f.cpf_cnpj_enc, f.razao_social, f.nome, f.email,
              f.mailing_id, o.outcome_unknown, o.processed_at IS NOT NULL AS ended,
              f.was IN ('SENT', 'FAILED', 'EXPIRED', 'CANCELLED', 'SUPPRESSED') AS had_ended,
              f.same_token, f.erased, f.replaced, f.probe
),

-- logged inserts or updates the emails' logs (by primary key of email_logs).
logged AS (
    INSERT INTO email_logs (outbox_id, company_id, recipient_id, recipient, subject, status, ses_message_id, error_code, error_reason,
                            attempts, throttles, duration_ms, request_id, external_id, tags, possible_duplicate, expires_at, created_at,
                            sent_at, failed_at, event_seq, last_event)
    SELECT m.id, m.company_id, coalesce(m.recipient_id, (m.payload #>> '{recipient,recipientId}')::uuid),
           m.payload ->> 'to', m.payload ->> 'subject', m.status, m.ses_message_id, m.error_code, m.error_reason,
           m.attempts, m.throttles, m.duration_ms, m.request_id, m.payload #>> '{recipient,externalId}',
           ARRAY(SELECT jsonb_array_elements_text(coalesce(m.payload -> 'tags', '[]'))), m.possible_duplicate, m.expires_at, m.created_at,
           CASE WHEN m.status = 'SENT' THEN now() END, CASE WHEN m.status = 'FAILED' THEN now() END,
           m.seq + jsonb_array_length(m.events), m.events #>> '{-1,type}'
    FROM moved m
    ON CONFLICT (outbox_id) DO UPDATE SET
        recipient_id = coalesce(excluded.recipient_id, email_logs.recipient_id),
        status = excluded.status,
        ses_message_id = coalesce(excluded.ses_message_id, email_logs.ses_message_id),
        error_code = CASE WHEN excluded.status = 'SENT' THEN NULL ELSE coalesce(excluded.error_code, email_logs.error_code) END,
        error_reason = CASE WHEN excluded.status = 'SENT' THEN NULL
                            WHEN excluded.error_code IS NULL THEN email_logs.error_reason ELSE excluded.error_reason END,
        attempts = excluded.attempts,
        throttles = excluded.throttles,
        duration_ms = coalesce(excluded.duration_ms, email_logs.duration_ms),
        possible_duplicate = excluded.possible_duplicate,
        expires_at = excluded.expires_at,
        sent_at = excluded.sent_at,
        failed_at = excluded.failed_at,
        event_seq = excluded.event_seq,
        last_event = excluded.last_event
),

-- timeline inserts the events behind the newest one that the log knew of.
timeline AS (
    INSERT INTO email_events (email_log_id, seq, previous, type, metadata, created_at)
    SELECT m.id, m.seq + e.n,
           CASE WHEN e.n = 1 THEN m.last_event ELSE m.events -> (e.n - 2)::int ->> 'type' END,
           e.event ->> 'type', coalesce(nullif(e.event -> 'metadata', 'null'), '{}'), (e.event ->> 'at')::timestamptz
    FROM moved m CROSS JOIN LATERAL jsonb_array_elements(m.events) WITH ORDINALITY AS e(event, n)
),

-- updates has what the emails say about their recipients. An email that is older than rows of deleted recipients are
-- kept (before create_from) says nothing, nor does that of a mailing whose recipientId is null (no_recipient in expand.sql).
updates AS (
    SELECT m.recipient_id, m.company_id, m.id, m.external_id, m.cpf_cnpj_hash, m.cpf_cnpj_enc, m.razao_social, m.nome,
           coalesce(m.email, m.payload ->> 'to') AS email, m.email IS NOT NULL AS states_email
    FROM moved m WHERE m.recipient_id IS NOT NULL AND m.id >= $6 /* create_from */
      AND (m.mailing_id IS NULL OR m.payload #> '{recipient,recipientId}' IS DISTINCT FROM 'null')
),

-- merged merges the CTE updates into recipients, per field. It locks recipients by primary key, in id order. updates has
-- the columns recipient_id, company_id, id, external_id, cpf_cnpj_hash, cpf_cnpj_enc, razao_social, nome, email,
-- states_email.
--
-- Updates arrive in any order. Their ids are UUIDv7 and sort by time of acceptance. Per field the newest update wins, and an
-- older one fills what is empty. NULL says nothing about a field. An address without states_email only fills a new row. A
-- deletion voids the updates that were accepted before it, and the first update after it starts a new recipient, which has
-- none of the deleted one's fields. A batch may hold updates from before and after a deletion.
--
-- Hash and encrypted number are one field, and the hash decides which update wins. An update may have the hash alone: then
-- the known encrypted number stays if it belongs to the same hash, and an older update may still fill it.
--
-- An update that changes nothing is not written, unless it is newer: its id must win over an older, different update that
-- may still arrive.
merged AS (
    INSERT INTO recipients (id, company_id, intake_id, merged_by, external_id, external_id_by, cpf_cnpj_hash, cpf_cnpj_by, cpf_cnpj_enc, cpf_cnpj_enc_by,
                            razao_social, razao_social_by, nome, nome_by, email)
    SELECT recipient_id, company_id, address_by, address_by, external_id, external_id_by, cpf_cnpj_hash, cpf_cnpj_by,
           CASE WHEN hash_of_enc = cpf_cnpj_hash THEN cpf_cnpj_enc END, cpf_cnpj_enc_by, razao_social, razao_social_by, nome, nome_by, email
    FROM (
        SELECT recipient_id, company_id,
               first_present(external_id) AS external_id, first_present(id) FILTER (WHERE external_id IS NOT NULL) AS external_id_by,
               first_present(cpf_cnpj_hash) AS cpf_cnpj_hash, first_present(id) FILTER (WHERE cpf_cnpj_hash IS NOT NULL) AS cpf_cnpj_by,
               first_present(cpf_cnpj_enc) FILTER (WHERE cpf_cnpj_hash IS NOT NULL) AS cpf_cnpj_enc,
               first_present(id) FILTER (WHERE cpf_cnpj_hash IS NOT NULL AND cpf_cnpj_enc IS NOT NULL) AS cpf_cnpj_enc_by,
               first_present(cpf_cnpj_hash) FILTER (WHERE cpf_cnpj_enc IS NOT NULL) AS hash_of_enc,
               first_present(razao_social) AS razao_social, first_present(id) FILTER (WHERE razao_social IS NOT NULL) AS razao_social_by,
               first_present(nome) AS nome, first_present(id) FILTER (WHERE nome IS NOT NULL) AS nome_by,
               coalesce(first_present(email) FILTER (WHERE states_email), first_present(email)) AS email,
               coalesce(first_present(id) FILTER (WHERE states_email), '00000000-0000-0000-0000-000000000000'::uuid) AS address_by
        FROM (SELECT * FROM updates ORDER BY recipient_id, id DESC) newest_first
        GROUP BY recipient_id, company_id
    ) said
    ORDER BY recipient_id
    ON CONFLICT (id) DO UPDATE SET
        intake_id = CASE WHEN /* newAddress */ excluded.intake_id > greatest('00000000-0000-0000-0000-000000000000'::uuid, recipients.deletion_id, CASE WHEN recipients.deleted_at IS NOT NULL THEN greatest(recipients.intake_id, first_id_at(recipients.deleted_at)) ELSE recipients.intake_id END) THEN excluded.intake_id ELSE coalesce(recipients.intake_id, '00000000-0000-0000-0000-000000000000'::uuid) END,
        merged_by = CASE WHEN /* newAddress */ excluded.intake_id > greatest('00000000-0000-0000-0000-000000000000'::uuid, recipients.deletion_id, CASE WHEN recipients.deleted_at IS NOT NULL THEN greatest(recipients.intake_id, first_id_at(recipients.deleted_at)) ELSE recipients.intake_id END) THEN excluded.intake_id ELSE coalesce(recipients.intake_id, '00000000-0000-0000-0000-000000000000'::uuid) END,
        external_id = CASE WHEN /* newExternalID */ coalesce(excluded.external_id_by > greatest('00000000-0000-0000-0000-000000000000'::uuid, recipients.deletion_id, CASE WHEN recipients.deleted_at IS NOT NULL THEN greatest(recipients.intake_id, first_id_at(recipients.deleted_at)) WHEN recipients.external_id IS NULL THEN NULL WHEN recipients.merged_by = recipients.intake_id THEN recipients.external_id_by ELSE recipients.intake_id END), false) THEN excluded.external_id WHEN recipients.deleted_at IS NULL THEN recipients.external_id END,
        external_id_by = CASE WHEN /* newExternalID */ coalesce(excluded.external_id_by > greatest('00000000-0000-0000-0000-000000000000'::uuid, recipients.deletion_id, CASE WHEN recipients.deleted_at IS NOT NULL THEN greatest(recipients.intake_id, first_id_at(recipients.deleted_at)) WHEN recipients.external_id IS NULL THEN NULL WHEN recipients.merged_by = recipients.intake_id THEN recipients.external_id_by ELSE recipients.intake_id END), false) THEN excluded.external_id_by WHEN recipients.merged_by = recipients.intake_id THEN recipients.external_id_by ELSE recipients.intake_id END,
        cpf_cnpj_hash = CASE WHEN /* newNumber */ coalesce(excluded.cpf_cnpj_by > greatest('00000000-0000-0000-0000-000000000000'::uuid, recipients.deletion_id, CASE WHEN recipients.deleted_at IS NOT NULL THEN greatest(recipients.intake_id, first_id_at(recipients.deleted_at)) WHEN recipients.cpf_cnpj_hash IS NULL THEN NULL WHEN recipients.merged_by = recipients.intake_id THEN recipients.cpf_cnpj_by ELSE recipients.intake_id END), false) THEN excluded.cpf_cnpj_hash WHEN recipients.deleted_at IS NULL THEN recipients.cpf_cnpj_hash END,
        cpf_cnpj_enc = CASE WHEN /* newEncrypted */ (/* newNumber */ coalesce(excluded.cpf_cnpj_by > greatest('00000000-0000-0000-0000-000000000000'::uuid, recipients.deletion_id, CASE WHEN recipients.deleted_at IS NOT NULL THEN greatest(recipients.intake_id, first_id_at(recipients.deleted_at)) WHEN recipients.cpf_cnpj_hash IS NULL THEN NULL WHEN recipients.merged_by = recipients.intake_id THEN recipients.cpf_cnpj_by ELSE recipients.intake_id END), false) AND excluded.cpf_cnpj_enc IS NOT NULL AND excluded.cpf_cnpj_enc_by > greatest('00000000-0000-0000-0000-000000000000'::uuid, recipients.deletion_id, CASE WHEN recipients.deleted_at IS NOT NULL THEN greatest(recipients.intake_id, first_id_at(recipients.deleted_at)) END) OR /* missingEncrypted */ coalesce(recipients.deleted_at IS NULL AND recipients.cpf_cnpj_hash = excluded.cpf_cnpj_hash AND recipients.cpf_cnpj_enc IS NULL AND excluded.cpf_cnpj_enc IS NOT NULL AND excluded.cpf_cnpj_enc_by > greatest('00000000-0000-0000-0000-000000000000'::uuid, recipients.deletion_id, CASE WHEN recipients.deleted_at IS NOT NULL THEN greatest(recipients.intake_id, first_id_at(recipients.deleted_at)) END), false)) THEN excluded.cpf_cnpj_enc WHEN /* keptEncrypted */ recipients.deleted_at IS NULL AND (NOT /* newNumber */ coalesce(excluded.cpf_cnpj_by > greatest('00000000-0000-0000-0000-000000000000'::uuid, recipients.deletion_id, CASE WHEN recipients.deleted_at IS NOT NULL THEN greatest(recipients.intake_id, first_id_at(recipients.deleted_at)) WHEN recipients.cpf_cnpj_hash IS NULL THEN NULL WHEN recipients.merged_by = recipients.intake_id THEN recipients.cpf_cnpj_by ELSE recipients.intake_id END), false) OR recipients.cpf_cnpj_hash = excluded.cpf_cnpj_hash) THEN recipients.cpf_cnpj_enc END,
        cpf_cnpj_enc_by = CASE WHEN /* newEncrypted */ (/* newNumber */ coalesce(excluded.cpf_cnpj_by > greatest('00000000-0000-0000-0000-000000000000'::uuid, recipients.deletion_id, CASE WHEN recipients.deleted_at IS NOT NULL THEN greatest(recipients.intake_id, first_id_at(recipients.deleted_at)) WHEN recipients.cpf_cnpj_hash IS NULL THEN NULL WHEN recipients.merged_by = recipients.intake_id THEN recipients.cpf_cnpj_by ELSE recipients.intake_id END), false) AND excluded.cpf_cnpj_enc IS NOT NULL AND excluded.cpf_cnpj_enc_by > greatest('00000000-0000-0000-0000-000000000000'::uuid, recipients.deletion_id, CASE WHEN recipients.deleted_at IS NOT NULL THEN greatest(recipients.intake_id, first_id_at(recipients.deleted_at)) END) OR /* missingEncrypted */ coalesce(recipients.deleted_at IS NULL AND recipients.cpf_cnpj_hash = excluded.cpf_cnpj_hash AND recipients.cpf_cnpj_enc IS NULL AND excluded.cpf_cnpj_enc IS NOT NULL AND excluded.cpf_cnpj_enc_by > greatest('00000000-0000-0000-0000-000000000000'::uuid, recipients.deletion_id, CASE WHEN recipients.deleted_at IS NOT NULL THEN greatest(recipients.intake_id, first_id_at(recipients.deleted_at)) END), false)) THEN excluded.cpf_cnpj_enc_by WHEN /* keptEncrypted */ recipients.deleted_at IS NULL AND (NOT /* newNumber */ coalesce(excluded.cpf_cnpj_by > greatest('00000000-0000-0000-0000-000000000000'::uuid, recipients.deletion_id, CASE WHEN recipients.deleted_at IS NOT NULL THEN greatest(recipients.intake_id, first_id_at(recipients.deleted_at)) WHEN recipients.cpf_cnpj_hash IS NULL THEN NULL WHEN recipients.merged_by = recipients.intake_id THEN recipients.cpf_cnpj_by ELSE recipients.intake_id END), false) OR recipients.cpf_cnpj_hash = excluded.cpf_cnpj_hash) THEN recipients.cpf_cnpj_enc_by END,
        cpf_cnpj_by = CASE WHEN /* newNumber */ coalesce(excluded.cpf_cnpj_by > greatest('00000000-0000-0000-0000-000000000000'::uuid, recipients.deletion_id, CASE WHEN recipients.deleted_at IS NOT NULL THEN greatest(recipients.intake_id, first_id_at(recipients.deleted_at)) WHEN recipients.cpf_cnpj_hash IS NULL THEN NULL WHEN recipients.merged_by = recipients.intake_id THEN recipients.cpf_cnpj_by ELSE recipients.intake_id END), false) THEN excluded.cpf_cnpj_by WHEN recipients.merged_by = recipients.intake_id THEN recipients.cpf_cnpj_by ELSE recipients.intake_id END,
        razao_social = CASE WHEN /* newRazaoSocial */ coalesce(excluded.razao_social_by > greatest('00000000-0000-0000-0000-000000000000'::uuid, recipients.deletion_id, CASE WHEN recipients.deleted_at IS NOT NULL THEN greatest(recipients.intake_id, first_id_at(recipients.deleted_at)) WHEN recipients.razao_social IS NULL THEN NULL WHEN recipients.merged_by = recipients.intake_id THEN recipients.razao_social_by ELSE recipients.intake_id END), false) THEN excluded.razao_social WHEN recipients.deleted_at IS NULL THEN recipients.razao_social END,
        razao_social_by = CASE WHEN /* newRazaoSocial */ coalesce(excluded.razao_social_by > greatest('00000000-0000-0000-0000-000000000000'::uuid, recipients.deletion_id, CASE WHEN recipients.deleted_at IS NOT NULL THEN greatest(recipients.intake_id, first_id_at(recipients.deleted_at)) WHEN recipients.razao_social IS NULL THEN NULL WHEN recipients.merged_by = recipients.intake_id THEN recipients.razao_social_by ELSE recipients.intake_id END), false) THEN excluded.razao_social_by WHEN recipients.merged_by = recipients.intake_id THEN recipients.razao_social_by ELSE recipients.intake_id END,
        nome = CASE WHEN /* newNome */ coalesce(excluded.nome_by > greatest('00000000-0000-0000-0000-000000000000'::uuid, recipients.deletion_id, CASE WHEN recipients.deleted_at IS NOT NULL THEN greatest(recipients.intake_id, first_id_at(recipients.deleted_at)) WHEN recipients.nome IS NULL THEN NULL WHEN recipients.merged_by = recipients.intake_id THEN recipients.nome_by ELSE recipients.intake_id END), false) THEN excluded.nome WHEN recipients.deleted_at IS NULL THEN recipients.nome END,
        nome_by = CASE WHEN /* newNome */ coalesce(excluded.nome_by > greatest('00000000-0000-0000-0000-000000000000'::uuid, recipients.deletion_id, CASE WHEN recipients.deleted_at IS NOT NULL THEN greatest(recipients.intake_id, first_id_at(recipients.deleted_at)) WHEN recipients.nome IS NULL THEN NULL WHEN recipients.merged_by = recipients.intake_id THEN recipients.nome_by ELSE recipients.intake_id END), false) THEN excluded.nome_by WHEN recipients.merged_by = recipients.intake_id THEN recipients.nome_by ELSE recipients.intake_id END,
        email = CASE WHEN /* newAddress */ excluded.intake_id > greatest('00000000-0000-0000-0000-000000000000'::uuid, recipients.deletion_id, CASE WHEN recipients.deleted_at IS NOT NULL THEN greatest(recipients.intake_id, first_id_at(recipients.deleted_at)) ELSE recipients.intake_id END) THEN excluded.email WHEN recipients.deleted_at IS NULL THEN recipients.email ELSE (SELECT s.email FROM updates s WHERE s.recipient_id = recipients.id ORDER BY s.id DESC LIMIT 1) END,
        deletion_id = greatest(recipients.deletion_id, CASE WHEN recipients.deleted_at IS NOT NULL THEN greatest(recipients.intake_id, first_id_at(recipients.deleted_at)) END),
        deleted_at = NULL,
        updated_at = now()
    WHERE recipients.company_id = excluded.company_id
      AND (/* newAddress */ excluded.intake_id > greatest('00000000-0000-0000-0000-000000000000'::uuid, recipients.deletion_id, CASE WHEN recipients.deleted_at IS NOT NULL THEN greatest(recipients.intake_id, first_id_at(recipients.deleted_at)) ELSE recipients.intake_id END) OR /* newExternalID */ coalesce(excluded.external_id_by > greatest('00000000-0000-0000-0000-000000000000'::uuid, recipients.deletion_id, CASE WHEN recipients.deleted_at IS NOT NULL THEN greatest(recipients.intake_id, first_id_at(recipients.deleted_at)) WHEN recipients.external_id IS NULL THEN NULL WHEN recipients.merged_by = recipients.intake_id THEN recipients.external_id_by ELSE recipients.intake_id END), false) OR /* newNumber */ coalesce(excluded.cpf_cnpj_by > greatest('00000000-0000-0000-0000-000000000000'::uuid, recipients.deletion_id, CASE WHEN recipients.deleted_at IS NOT NULL THEN greatest(recipients.intake_id, first_id_at(recipients.deleted_at)) WHEN recipients.cpf_cnpj_hash IS NULL THEN NULL WHEN recipients.merged_by = recipients.intake_id THEN recipients.cpf_cnpj_by ELSE recipients.intake_id END), false) OR /* missingEncrypted */ coalesce(recipients.deleted_at IS NULL AND recipients.cpf_cnpj_hash = excluded.cpf_cnpj_hash AND recipients.cpf_cnpj_enc IS NULL AND excluded.cpf_cnpj_enc IS NOT NULL AND excluded.cpf_cnpj_enc_by > greatest('00000000-0000-0000-0000-000000000000'::uuid, recipients.deletion_id, CASE WHEN recipients.deleted_at IS NOT NULL THEN greatest(recipients.intake_id, first_id_at(recipients.deleted_at)) END), false) OR /* newRazaoSocial */ coalesce(excluded.razao_social_by > greatest('00000000-0000-0000-0000-000000000000'::uuid, recipients.deletion_id, CASE WHEN recipients.deleted_at IS NOT NULL THEN greatest(recipients.intake_id, first_id_at(recipients.deleted_at)) WHEN recipients.razao_social IS NULL THEN NULL WHEN recipients.merged_by = recipients.intake_id THEN recipients.razao_social_by ELSE recipients.intake_id END), false) OR /* newNome */ coalesce(excluded.nome_by > greatest('00000000-0000-0000-0000-000000000000'::uuid, recipients.deletion_id, CASE WHEN recipients.deleted_at IS NOT NULL THEN greatest(recipients.intake_id, first_id_at(recipients.deleted_at)) WHEN recipients.nome IS NULL THEN NULL WHEN recipients.merged_by = recipients.intake_id THEN recipients.nome_by ELSE recipients.intake_id END), false))
),

-- dead inserts the dead letters of the emails that failed for good.
dead AS (
    INSERT INTO dead_letters (id, company_id, mailing_id, outbox_id, target, email, reason, attempts, last_error, payload)
    SELECT gen_random_uuid(), m.company_id, m.mailing_id, m.id, 'email:send', m.payload ->> 'to', m.error_code, m.attempts, m.error_reason, m.payload
    FROM moved m WHERE m.dead_letter
),

-- revived resolves the open dead letters (by dead_letters_open) of the emails that are sent or retried.
revived AS (
    UPDATE dead_letters d SET resolved_at = now(), updated_at = now(),
        resolution = CASE m.status WHEN 'SENT' THEN 'sent' ELSE 'retried' END,
        resolved_by = nullif(concat_ws(':', m.events #>> '{0,metadata,by}',
            coalesce(m.events #>> '{0,metadata,keyId}', m.events #>> '{0,metadata,operator}', m.events #>> '{0,metadata,mailingId}')), ''),
        replay_id = (m.events #>> '{0,metadata,replayId}')::uuid
    FROM moved m
    WHERE d.outbox_id = m.id AND d.resolved_at IS NULL AND m.status IN ('PENDING', 'SENT')
),

-- entry writes the final status of a mailing's email to its entry (by primary key of mailing_entries: both have the same
-- id), and QUEUED when the email leaves a final status.
entry AS (
    UPDATE mailing_entries e SET
        status = CASE WHEN m.ended THEN m.status ELSE 'QUEUED' END,
        outcome_unknown = m.ended AND m.status <> 'SENT' AND m.outcome_unknown,
        attempts = m.attempts,
        last_attempt = now(),
        external_id = coalesce(m.ses_message_id, e.external_id),
        updated_at = now()
    FROM moved m
    WHERE e.id = m.id AND m.mailing_id IS NOT NULL AND (m.ended OR m.had_ended)
),

-- reopened locks and writes rows of mailings (by primary key), only for emails that leave a final status: after a replay,
-- feedback, or a late answer of the provider. The mailing is then counted again. The end of an email does not write to
-- mailings, because thousands of emails per second would wait for that one row: a loop counts.
reopened AS (
    UPDATE mailings SET counted_at = NULL, updated_at = now(),
        status = CASE WHEN status = 'COMPLETED' AND EXISTS (SELECT FROM moved m WHERE m.mailing_id = mailings.id AND NOT m.ended)
                      THEN 'SENDING' ELSE status END,
        completed_at = CASE WHEN status = 'COMPLETED' AND EXISTS (SELECT FROM moved m WHERE m.mailing_id = mailings.id AND NOT m.ended)
                            THEN NULL ELSE completed_at END
    WHERE id IN (SELECT m.mailing_id FROM moved m WHERE m.had_ended)
),

-- marked marks mailings whose emails ended, because a mailing without a mark is counted seldom. A mark is a new row, which
-- waits for no lock on the mailing; the next count deletes it.
marked AS (
    INSERT INTO mailing_marks (mailing_id)
    SELECT id FROM mailings
    WHERE id IN (SELECT m.mailing_id FROM moved m WHERE m.ended AND NOT m.had_ended)
      AND status IN ('QUEUED', 'PENDING', 'PROCESSING', 'SENDING', 'PAUSED', 'FAILED')
)

-- The results: emails that moved, emails whose guard did not hold, and emails that are locked. They are appended and not
-- joined: for a join, whose planner expects one email, all that moved would be read again for each email of the group.
-- Locked emails are looked for, by primary key and without a lock, only if some email was not found.
SELECT m.id, true AS applied, m.status, m.attempts, m.throttles, m.same_token, m.erased, m.replaced, m.probe,
       coalesce((SELECT shuts FROM provider_gate WHERE id = 1), 0) AS openings, false AS locked, m.company_id, m.request_id, m.mailing_id
FROM moved m
UNION ALL
SELECT f.id, false, f.was, f.attempts, f.throttles, f.same_token, f.erased, f.replaced, f.probe,
       coalesce((SELECT shuts FROM provider_gate WHERE id = 1), 0), false, NULL, '', NULL
FROM found f WHERE f.id NOT IN (SELECT id FROM moved)
UNION ALL
SELECT o.id, false, '', 0, 0, false, false, false, false, 0, true, NULL, '', NULL
FROM (SELECT * FROM unnest($7::uuid[]) AS t(id) WHERE (SELECT count(*) FROM found) < $2 /* count */ LIMIT $2 /* count */) t
JOIN email_outbox o ON o.id = t.id AND CASE WHEN t.id IS NOT NULL THEN o.target = 'email:send' END
WHERE o.id NOT IN (SELECT id FROM found)
