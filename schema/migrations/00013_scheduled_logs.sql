-- A scheduled email has its email_logs row from its acceptance on, so that every search
-- finds it by an index of email_logs. Such a row has no event yet: event_seq is 0 and
-- last_event is NULL. RESCHEDULED is a new event, which may be the first one.
--
-- Programs of the release before run beside this. They read last_event as the predecessor
-- of the next event, for which NULL with number 1 is what the CHECKs demand, and update the
-- row where it exists. What they write satisfies both new CHECKs.

-- +goose NO TRANSACTION
-- +goose Up

-- The ALTERs need a short ACCESS EXCLUSIVE lock. Behind a backup they give up, and the file
-- can be run again.
SET lock_timeout = '3s';

ALTER TABLE email_logs ALTER COLUMN last_event DROP NOT NULL;
ALTER TABLE email_logs DROP CONSTRAINT IF EXISTS email_logs_last_event;
ALTER TABLE email_logs ADD CONSTRAINT email_logs_last_event CHECK ((event_seq = 0) = (last_event IS NULL)) NOT VALID;
ALTER TABLE email_logs VALIDATE CONSTRAINT email_logs_last_event;

-- The new CHECK accepts every pair that the old one does. VALIDATE reads the table without
-- stopping writes; then the old one goes.
ALTER TABLE email_events DROP CONSTRAINT IF EXISTS email_events_path_new;
ALTER TABLE email_events ADD CONSTRAINT email_events_path_new CHECK (
    CASE coalesce(previous, '')
        WHEN ''                  THEN type IN ('RECEIVED', 'RESCHEDULED', 'CANCELLED', 'EXPIRED', 'SUPPRESSED')
        WHEN 'RECEIVED'          THEN type IN ('VALIDATED', 'VALIDATION_FAILED', 'SUPPRESSED')
        WHEN 'VALIDATED'         THEN type IN ('SENT_ATTEMPT')
        WHEN 'VALIDATION_FAILED' THEN type IN ('FAILED')
        WHEN 'SENT_ATTEMPT'      THEN type IN ('SENT', 'FAILED', 'RETRY_SCHEDULED', 'OUTCOME_UNKNOWN', 'RELEASED')
        WHEN 'OUTCOME_UNKNOWN'   THEN type IN ('SENT', 'FAILED', 'RETRY_SCHEDULED')
        WHEN 'RESCHEDULED'       THEN type IN ('RECEIVED', 'RESCHEDULED', 'CANCELLED', 'EXPIRED', 'SUPPRESSED', 'SENT')
        WHEN 'RETRY_SCHEDULED'   THEN type IN ('RECEIVED', 'RESCHEDULED', 'CANCELLED', 'EXPIRED', 'SUPPRESSED', 'SENT')
        WHEN 'RELEASED'          THEN type IN ('RECEIVED', 'RESCHEDULED', 'CANCELLED', 'EXPIRED', 'SUPPRESSED', 'SENT')
        WHEN 'REPLAYED'          THEN type IN ('RECEIVED', 'RESCHEDULED', 'CANCELLED', 'EXPIRED', 'SUPPRESSED', 'SENT')
        WHEN 'FAILED'            THEN type IN ('REPLAYED', 'SENT')
        WHEN 'EXPIRED'           THEN type IN ('REPLAYED', 'SENT')
        WHEN 'CANCELLED'         THEN type IN ('REPLAYED', 'SENT')
        WHEN 'SUPPRESSED'        THEN type IN ('SENT')
        ELSE previous IN ('SENT', 'DELIVERED', 'DELIVERY_DELAYED', 'BOUNCED', 'COMPLAINED', 'REJECTED', 'RENDERING_FAILED',
                          'OPENED', 'CLICKED', 'SUBSCRIPTION_CHANGED', 'DUPLICATE_CONFIRMED')
            AND type IN ('DELIVERED', 'DELIVERY_DELAYED', 'BOUNCED', 'COMPLAINED', 'REJECTED', 'RENDERING_FAILED',
                         'OPENED', 'CLICKED', 'SUBSCRIPTION_CHANGED', 'DUPLICATE_CONFIRMED')
    END) NOT VALID;
ALTER TABLE email_events VALIDATE CONSTRAINT email_events_path_new;
-- +goose StatementBegin
DO $$
BEGIN
    ALTER TABLE email_events DROP CONSTRAINT email_events_path;
    ALTER TABLE email_events RENAME CONSTRAINT email_events_path_new TO email_events_path;
END
$$;
-- +goose StatementEnd

-- +goose StatementBegin
-- Writes the email_logs row of an email that has no event yet, as the accept statement of
-- the gateway's programs does (insertScheduledSQL); a test compares the two. It reads
-- email_outbox by primary key.
CREATE OR REPLACE FUNCTION email_gateway_log(id uuid) RETURNS void
LANGUAGE sql SET search_path = pg_catalog, public, pg_temp AS $$
    INSERT INTO email_logs (outbox_id, company_id, recipient_id, recipient, subject, status, attempts, throttles, request_id, external_id, tags,
                            possible_duplicate, expires_at, created_at, event_seq)
    SELECT o.id, o.company_id, (o.payload #>> '{recipient,recipientId}')::uuid, o.payload ->> 'to', o.payload ->> 'subject', o.status, o.attempts, o.throttles,
           o.request_id, o.payload #>> '{recipient,externalId}', ARRAY(SELECT jsonb_array_elements_text(coalesce(o.payload -> 'tags', '[]'))),
           o.possible_duplicate, o.expires_at, o.created_at, 0
    FROM email_outbox o WHERE o.id = email_gateway_log.id
    ON CONFLICT (outbox_id) DO NOTHING
$$;
-- +goose StatementEnd

-- +goose StatementBegin
-- The move of an email that is held to another time: outbox row, log and event, as the
-- gateway's programs write them (rescheduleSQL); a test compares the two. A time that does
-- not change, or that has passed both before and after, adds no event.
CREATE OR REPLACE FUNCTION email_gateway_move(id uuid, moment timestamptz, due timestamptz, ttl interval) RETURNS void
LANGUAGE sql SET search_path = pg_catalog, public, pg_temp AS $$
    WITH found AS MATERIALIZED (
        SELECT o.next_at AS was_due, due <> greatest(moment, o.next_at) AS changed FROM email_outbox o WHERE o.id = email_gateway_move.id
    ), moved AS (
        UPDATE email_outbox o SET status = 'PENDING', enqueued_at = NULL, next_at = due, expires_at = due + ttl FROM found f
        WHERE o.id = email_gateway_move.id RETURNING o.*, f.was_due, f.changed
    ), logged AS (
        INSERT INTO email_logs (outbox_id, company_id, recipient_id, recipient, subject, status, attempts, throttles, request_id, external_id, tags,
                                possible_duplicate, expires_at, created_at, event_seq, last_event)
        SELECT m.id, m.company_id, (m.payload #>> '{recipient,recipientId}')::uuid, m.payload ->> 'to', m.payload ->> 'subject', m.status, m.attempts, m.throttles,
               m.request_id, m.payload #>> '{recipient,externalId}', ARRAY(SELECT jsonb_array_elements_text(coalesce(m.payload -> 'tags', '[]'))),
               m.possible_duplicate, m.expires_at, m.created_at, 1, 'RESCHEDULED'
        FROM moved m WHERE m.changed
        ON CONFLICT (outbox_id) DO UPDATE SET
            status = excluded.status, expires_at = excluded.expires_at, event_seq = email_logs.event_seq + 1, last_event = excluded.last_event
    )
    INSERT INTO email_events (email_log_id, seq, previous, type, metadata, created_at)
    SELECT m.id, coalesce(l.event_seq, 0) + 1, l.last_event, 'RESCHEDULED', jsonb_build_object('by', 'program', 'role', session_user,
               'oldSendAt', to_char(m.was_due AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"'),
               'newSendAt', to_char(m.next_at AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"')), moment
    FROM moved m LEFT JOIN email_logs l ON l.outbox_id = m.id WHERE m.changed
$$;
-- +goose StatementEnd

-- +goose StatementBegin
-- Writes an email into the caller's transaction. email is the body of POST /v1/email/send
-- without sendAt and aggregate; a null in it counts as left out. It is written once per
-- aggregate and event type: the second time the first one is returned, as it is, with
-- created = false. When it was cancelled, a new one is written. A scheduled email gets its
-- email_logs row at once.
CREATE OR REPLACE FUNCTION email_gateway_enqueue(
    company uuid, aggregate_type text, aggregate_id text, event_type text, email jsonb,
    send_at timestamptz DEFAULT NULL, ttl interval DEFAULT '24 hours', request_id text DEFAULT NULL
) RETURNS TABLE (outbox_id uuid, created boolean, status text)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp AS $$
DECLARE
    body jsonb := jsonb_strip_nulls(email);
    accepted_at timestamptz := date_trunc('milliseconds', clock_timestamp());
    due timestamptz := greatest(accepted_at, send_at);
    request text := coalesce(request_id, 'tx-' || pg_current_xact_id()::text);
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
    SELECT l.id INTO lane FROM dispatch_lanes l
    WHERE l.company_id = company AND l.mailing_id IS NULL AND l.queue = CASE
        WHEN coalesce(body ->> 'priority', '5')::int <= 3 THEN 'email:send:high'
        WHEN coalesce(body ->> 'priority', '5')::int <= 7 THEN 'email:send' ELSE 'email:send:low' END;
    -- checker_version 0: nobody has looked at the html yet, so the worker will.
    INSERT INTO email_outbox (id, company_id, lane_id, request_id, sender, html, text_body, html_sha256, checker_version, priority, delivery,
                              aggregate_type, aggregate_id, event_type, created_at, next_at, expires_at, payload)
    VALUES (newcomer, company, lane, request, coalesce(body ->> 'from', usual), body ->> 'html', nullif(body ->> 'text', ''),
            sha256(convert_to(body ->> 'html', 'UTF8')), 0, coalesce(body ->> 'priority', '5')::smallint, coalesce(body ->> 'delivery', 'at_least_once'),
            email_gateway_enqueue.aggregate_type, email_gateway_enqueue.aggregate_id, email_gateway_enqueue.event_type, accepted_at, due, due + ttl,
            body - '{from,html,text,priority,delivery}'::text[]
            || jsonb_build_object('outboxId', newcomer, 'companyId', company, 'requestId', request, 'htmlRef', newcomer, 'recipient',
                   body -> 'recipient' || jsonb_strip_nulls(jsonb_build_object('recipientId', person))));
    IF due > accepted_at THEN
        PERFORM email_gateway_log(newcomer);
    END IF;
    RETURN QUERY SELECT newcomer, true, 'PENDING';
END
$$;
-- +goose StatementEnd

-- +goose StatementBegin
-- Moves an email to another time, in the caller's transaction; a time that has passed, and
-- NULL, is now. moved = false: it is too late, status says why. No row: there is no such email.
CREATE OR REPLACE FUNCTION email_gateway_reschedule(
    company uuid, aggregate_type text, aggregate_id text, event_type text, send_at timestamptz, ttl interval DEFAULT '24 hours'
) RETURNS TABLE (outbox_id uuid, moved boolean, status text)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp AS $$
DECLARE
    moment CONSTANT timestamptz := clock_timestamp();
    mail uuid;
    held boolean;
BEGIN
    PERFORM email_gateway_admit(company);
    PERFORM email_gateway_check_times(send_at, ttl);
    SELECT a.outbox_id INTO mail FROM outbox_aggregates a
    WHERE a.company_id = company AND a.aggregate_type = email_gateway_reschedule.aggregate_type
      AND a.aggregate_id = email_gateway_reschedule.aggregate_id AND a.event_type = email_gateway_reschedule.event_type
    ORDER BY a.turn DESC LIMIT 1;
    IF NOT FOUND THEN
        RETURN;
    END IF;
    held := email_gateway_hold(mail);
    IF held THEN
        PERFORM email_gateway_move(mail, moment, greatest(moment, send_at), ttl);
    END IF;
    RETURN QUERY SELECT mail, held, email_gateway_status(mail);
END
$$;
-- +goose StatementEnd

-- A new function may be called by everybody. Only the functions above call these two.
REVOKE ALL ON FUNCTION email_gateway_log(uuid), email_gateway_move(uuid, timestamptz, timestamptz, interval) FROM PUBLIC;

-- The scheduled emails that are waiting already. email_outbox_open finds the rows. A row that
-- another transaction holds is skipped: its transition writes the log.
-- +goose StatementBegin
DO $$
DECLARE
    mail uuid;
    n bigint := 0;
BEGIN
    FOR mail IN
        SELECT o.id FROM email_outbox o WHERE o.status = 'PENDING' AND o.target = 'email:send' AND o.next_at > now()
    LOOP
        PERFORM FROM email_outbox o WHERE o.id = mail AND o.status = 'PENDING' FOR SHARE SKIP LOCKED;
        IF FOUND THEN
            PERFORM email_gateway_log(mail);
        END IF;
        n := n + 1;
        IF n % 500 = 0 THEN
            COMMIT;
        END IF;
    END LOOP;
END
$$;
-- +goose StatementEnd

RESET lock_timeout;

-- +goose Down

-- +goose StatementBegin
-- Writes an email into the caller's transaction. email is the body of POST /v1/email/send
-- without sendAt and aggregate; a null in it counts as left out. It is written once per
-- aggregate and event type: the second time the first one is returned, as it is, with
-- created = false. When it was cancelled, a new one is written.
CREATE OR REPLACE FUNCTION email_gateway_enqueue(
    company uuid, aggregate_type text, aggregate_id text, event_type text, email jsonb,
    send_at timestamptz DEFAULT NULL, ttl interval DEFAULT '24 hours', request_id text DEFAULT NULL
) RETURNS TABLE (outbox_id uuid, created boolean, status text)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp AS $$
DECLARE
    body jsonb := jsonb_strip_nulls(email);
    accepted_at timestamptz := date_trunc('milliseconds', clock_timestamp());
    due timestamptz := greatest(accepted_at, send_at);
    request text := coalesce(request_id, 'tx-' || pg_current_xact_id()::text);
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
    SELECT l.id INTO lane FROM dispatch_lanes l
    WHERE l.company_id = company AND l.mailing_id IS NULL AND l.queue = CASE
        WHEN coalesce(body ->> 'priority', '5')::int <= 3 THEN 'email:send:high'
        WHEN coalesce(body ->> 'priority', '5')::int <= 7 THEN 'email:send' ELSE 'email:send:low' END;
    -- checker_version 0: nobody has looked at the html yet, so the worker will.
    INSERT INTO email_outbox (id, company_id, lane_id, request_id, sender, html, text_body, html_sha256, checker_version, priority, delivery,
                              aggregate_type, aggregate_id, event_type, created_at, next_at, expires_at, payload)
    VALUES (newcomer, company, lane, request, coalesce(body ->> 'from', usual), body ->> 'html', nullif(body ->> 'text', ''),
            sha256(convert_to(body ->> 'html', 'UTF8')), 0, coalesce(body ->> 'priority', '5')::smallint, coalesce(body ->> 'delivery', 'at_least_once'),
            email_gateway_enqueue.aggregate_type, email_gateway_enqueue.aggregate_id, email_gateway_enqueue.event_type, accepted_at, due, due + ttl,
            body - '{from,html,text,priority,delivery}'::text[]
            || jsonb_build_object('outboxId', newcomer, 'companyId', company, 'requestId', request, 'htmlRef', newcomer, 'recipient',
                   body -> 'recipient' || jsonb_strip_nulls(jsonb_build_object('recipientId', person))));
    RETURN QUERY SELECT newcomer, true, 'PENDING';
END
$$;
-- +goose StatementEnd

-- +goose StatementBegin
-- Moves an email to another time, in the caller's transaction; a time that has passed, and
-- NULL, is now. moved = false: it is too late, status says why. No row: there is no such email.
CREATE OR REPLACE FUNCTION email_gateway_reschedule(
    company uuid, aggregate_type text, aggregate_id text, event_type text, send_at timestamptz, ttl interval DEFAULT '24 hours'
) RETURNS TABLE (outbox_id uuid, moved boolean, status text)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp AS $$
DECLARE
    due timestamptz := greatest(clock_timestamp(), send_at);
    mail uuid;
    held boolean;
BEGIN
    PERFORM email_gateway_admit(company);
    PERFORM email_gateway_check_times(send_at, ttl);
    SELECT a.outbox_id INTO mail FROM outbox_aggregates a
    WHERE a.company_id = company AND a.aggregate_type = email_gateway_reschedule.aggregate_type
      AND a.aggregate_id = email_gateway_reschedule.aggregate_id AND a.event_type = email_gateway_reschedule.event_type
    ORDER BY a.turn DESC LIMIT 1;
    IF NOT FOUND THEN
        RETURN;
    END IF;
    held := email_gateway_hold(mail);
    IF held THEN
        UPDATE email_outbox o SET status = 'PENDING', next_at = due, expires_at = due + ttl WHERE o.id = mail;
    END IF;
    RETURN QUERY SELECT mail, held, email_gateway_status(mail);
END
$$;
-- +goose StatementEnd

DROP FUNCTION email_gateway_move(uuid, timestamptz, timestamptz, interval), email_gateway_log(uuid);

-- The timelines are closed up where RESCHEDULED stood; logs without an event go.
-- +goose StatementBegin
DO $$
BEGIN
    DROP TABLE IF EXISTS pg_temp.kept_events;
    CREATE TEMP TABLE kept_events ON COMMIT DROP AS
        SELECT k.email_log_id, row_number() OVER steps AS seq, lag(k.type) OVER steps AS previous, k.type, k.metadata, k.created_at
        FROM email_events k
        WHERE k.type <> 'RESCHEDULED' AND k.email_log_id IN (SELECT email_log_id FROM email_events WHERE type = 'RESCHEDULED')
        WINDOW steps AS (PARTITION BY k.email_log_id ORDER BY k.seq);
    UPDATE email_logs l SET event_seq = coalesce(k.n, 0), last_event = k.last
    FROM (SELECT DISTINCT email_log_id AS id FROM email_events WHERE type = 'RESCHEDULED') moved
    LEFT JOIN (SELECT email_log_id, count(*) AS n, (array_agg(type ORDER BY seq DESC))[1] AS last FROM kept_events GROUP BY email_log_id) k
        ON k.email_log_id = moved.id
    WHERE l.outbox_id = moved.id;
    DELETE FROM email_events WHERE email_log_id IN (SELECT email_log_id FROM email_events WHERE type = 'RESCHEDULED');
    INSERT INTO email_events (email_log_id, seq, previous, type, metadata, created_at) SELECT * FROM kept_events;
    DELETE FROM email_logs WHERE event_seq = 0;
    ALTER TABLE email_events DROP CONSTRAINT email_events_path;
    ALTER TABLE email_events ADD CONSTRAINT email_events_path CHECK (
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
            ELSE previous IN ('SENT', 'DELIVERED', 'DELIVERY_DELAYED', 'BOUNCED', 'COMPLAINED', 'REJECTED', 'RENDERING_FAILED',
                              'OPENED', 'CLICKED', 'SUBSCRIPTION_CHANGED', 'DUPLICATE_CONFIRMED')
                AND type IN ('DELIVERED', 'DELIVERY_DELAYED', 'BOUNCED', 'COMPLAINED', 'REJECTED', 'RENDERING_FAILED',
                             'OPENED', 'CLICKED', 'SUBSCRIPTION_CHANGED', 'DUPLICATE_CONFIRMED')
        END);
    ALTER TABLE email_logs DROP CONSTRAINT email_logs_last_event;
    ALTER TABLE email_logs ALTER COLUMN last_event SET NOT NULL;
END
$$;
-- +goose StatementEnd
