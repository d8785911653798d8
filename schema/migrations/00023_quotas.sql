-- Quotas of companies. quota_defaults holds the limits of the installation, company_quotas
-- those of single companies, and 0 is unlimited.
--
-- Triggers count, in the transaction that writes the rows, so that whoever writes them is
-- counted: the gateway's programs, those of the release before, the functions for programs
-- that share the database, deletions and erasures. A trigger adds a row to quota_deltas,
-- which locks nothing. The dispatcher folds these rows into quota_totals. The use of a
-- company is its total and the deltas that are not folded yet, read by one statement.
--
-- scheduled_emails is the exception: an email becomes due without a write. Its number is
-- the last count of the outbox and what was scheduled since, and it is counted again before
-- anything is refused. The quotas of mailings are counted from the table mailings.

-- +goose NO TRANSACTION
-- +goose Up

-- A backup may use a table for hours. The file can be run again.
SET lock_timeout = '3s';

CREATE TABLE IF NOT EXISTS quota_defaults (
    singleton            boolean PRIMARY KEY DEFAULT true CHECK (singleton), -- there is one row
    scheduled_emails     bigint NOT NULL DEFAULT 100000 CHECK (scheduled_emails >= 0),
    emails_per_day       bigint NOT NULL DEFAULT 1000000 CHECK (emails_per_day >= 0),
    stored_body_bytes    bigint NOT NULL DEFAULT 10737418240 CHECK (stored_body_bytes >= 0),
    recipients           bigint NOT NULL DEFAULT 10000000 CHECK (recipients >= 0),
    suppressions         bigint NOT NULL DEFAULT 10000000 CHECK (suppressions >= 0),
    stored_file_bytes    bigint NOT NULL DEFAULT 10737418240 CHECK (stored_file_bytes >= 0),
    running_mailings     bigint NOT NULL DEFAULT 20 CHECK (running_mailings >= 0),
    mailing_rows_per_day bigint NOT NULL DEFAULT 10000000 CHECK (mailing_rows_per_day >= 0),
    updated_at           timestamptz NOT NULL DEFAULT now()
);
INSERT INTO quota_defaults DEFAULT VALUES ON CONFLICT DO NOTHING;

-- NULL = the installation's.
CREATE TABLE IF NOT EXISTS company_quotas (
    company_id           uuid PRIMARY KEY REFERENCES companies,
    scheduled_emails     bigint CHECK (scheduled_emails >= 0),
    emails_per_day       bigint CHECK (emails_per_day >= 0),
    stored_body_bytes    bigint CHECK (stored_body_bytes >= 0),
    recipients           bigint CHECK (recipients >= 0),
    suppressions         bigint CHECK (suppressions >= 0),
    stored_file_bytes    bigint CHECK (stored_file_bytes >= 0),
    running_mailings     bigint CHECK (running_mailings >= 0),
    mailing_rows_per_day bigint CHECK (mailing_rows_per_day >= 0),
    updated_at           timestamptz NOT NULL DEFAULT now()
);

-- A company's row is also the lock of those requests that are close to a quota.
CREATE TABLE IF NOT EXISTS quota_totals (
    company_id    uuid PRIMARY KEY,
    folded_before xid8 NOT NULL DEFAULT '0', -- no delta of a transaction before this one is left
    day           date NOT NULL DEFAULT '-infinity', -- the UTC day of emails
    emails        bigint NOT NULL DEFAULT 0,
    scheduled     bigint NOT NULL DEFAULT 0,
    scheduled_at  timestamptz,               -- when the scheduled emails were counted; NULL = never
    body_bytes    bigint NOT NULL DEFAULT 0,
    recipients    bigint NOT NULL DEFAULT 0,
    suppressions  bigint NOT NULL DEFAULT 0
);
ALTER TABLE quota_totals SET (fillfactor = 50);

CREATE TABLE IF NOT EXISTS quota_deltas (
    company_id    uuid NOT NULL,
    xid           xid8 NOT NULL DEFAULT pg_current_xact_id(),
    id            bigint GENERATED ALWAYS AS IDENTITY,
    day           date NOT NULL DEFAULT (now() AT TIME ZONE 'UTC')::date,
    emails        bigint NOT NULL DEFAULT 0,
    scheduled     bigint NOT NULL DEFAULT 0,
    body_bytes    bigint NOT NULL DEFAULT 0,
    recipients    bigint NOT NULL DEFAULT 0,
    suppressions  bigint NOT NULL DEFAULT 0,
    PRIMARY KEY (company_id, xid, id)
);
-- Every row is deleted within seconds.
ALTER TABLE quota_deltas SET (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 10000, autovacuum_vacuum_cost_delay = 0);

-- Why a mailing waits, and until when: its day's emails are used up.
ALTER TABLE mailings
    ADD COLUMN IF NOT EXISTS waiting_for text,
    ADD COLUMN IF NOT EXISTS waiting_until timestamptz,
    ADD COLUMN IF NOT EXISTS file_bytes bigint; -- of the stored file; NULL = not known: uploaded by the release before

-- counted: when this was accepted the person was neither in recipients nor in another intake.
ALTER TABLE recipient_intakes ADD COLUMN IF NOT EXISTS counted boolean NOT NULL DEFAULT false;

SET lock_timeout = 0; -- an index waits for those who are writing, and nobody for it
DROP INDEX CONCURRENTLY IF EXISTS mailings_running;
CREATE INDEX CONCURRENTLY mailings_running ON mailings (company_id) WHERE status IN ('QUEUED', 'PENDING', 'PROCESSING', 'SENDING');
DROP INDEX CONCURRENTLY IF EXISTS mailings_stored;
CREATE INDEX CONCURRENTLY mailings_stored ON mailings (company_id) INCLUDE (file_bytes) WHERE file_deleted_at IS NULL AND file_bytes > 0;
SET lock_timeout = '3s';

-- +goose StatementBegin
-- Counts emails that were inserted. One that a program writes is due at the time of its
-- acceptance, which is later than the beginning of its transaction.
CREATE OR REPLACE FUNCTION email_gateway_count_added_emails() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp SET standard_conforming_strings = on AS $$
BEGIN
    INSERT INTO quota_deltas (company_id, emails, scheduled, body_bytes)
    SELECT company_id, count(*), count(*) FILTER (WHERE next_at > greatest(now(), created_at)),
           sum(coalesce(octet_length(html), 0) + coalesce(octet_length(text_body), 0))
    FROM added WHERE target = 'email:send' GROUP BY company_id;
    RETURN NULL;
END
$$;
-- +goose StatementEnd

-- +goose StatementBegin
CREATE OR REPLACE FUNCTION email_gateway_count_gone_emails() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp SET standard_conforming_strings = on AS $$
BEGIN
    INSERT INTO quota_deltas (company_id, body_bytes)
    SELECT company_id, -sum(octet_length(html) + coalesce(octet_length(text_body), 0)) FROM gone
    WHERE target = 'email:send' AND html <> '' GROUP BY company_id;
    RETURN NULL;
END
$$;
-- +goose StatementEnd

-- +goose StatementBegin
CREATE OR REPLACE FUNCTION email_gateway_count_changed_email() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp SET standard_conforming_strings = on AS $$
BEGIN
    INSERT INTO quota_deltas (company_id, body_bytes)
    VALUES (new.company_id, coalesce(octet_length(new.html), 0) + coalesce(octet_length(new.text_body), 0)
                            - coalesce(octet_length(old.html), 0) - coalesce(octet_length(old.text_body), 0));
    RETURN NULL;
END
$$;
-- +goose StatementEnd

-- +goose StatementBegin
CREATE OR REPLACE FUNCTION email_gateway_count_added_recipients() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp SET standard_conforming_strings = on AS $$
BEGIN
    INSERT INTO quota_deltas (company_id, recipients) SELECT company_id, count(*) FROM added WHERE deleted_at IS NULL GROUP BY company_id;
    RETURN NULL;
END
$$;
-- +goose StatementEnd

-- +goose StatementBegin
CREATE OR REPLACE FUNCTION email_gateway_count_gone_recipients() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp SET standard_conforming_strings = on AS $$
BEGIN
    INSERT INTO quota_deltas (company_id, recipients) SELECT company_id, -count(*) FROM gone WHERE deleted_at IS NULL GROUP BY company_id;
    RETURN NULL;
END
$$;
-- +goose StatementEnd

-- +goose StatementBegin
-- A recipient was deleted, or came back.
CREATE OR REPLACE FUNCTION email_gateway_count_changed_recipient() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp SET standard_conforming_strings = on AS $$
BEGIN
    INSERT INTO quota_deltas (company_id, recipients) VALUES (new.company_id, CASE WHEN new.deleted_at IS NULL THEN 1 ELSE -1 END);
    RETURN NULL;
END
$$;
-- +goose StatementEnd

-- +goose StatementBegin
-- A new person counts from the acceptance on, though RabbitMQ has yet to carry them. Both
-- tables are looked up by primary key.
CREATE OR REPLACE FUNCTION email_gateway_mark_intake() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp SET standard_conforming_strings = on AS $$
BEGIN
    new.counted := NOT EXISTS (SELECT FROM recipients r WHERE r.id = new.recipient_id AND r.deleted_at IS NULL)
        AND NOT EXISTS (SELECT FROM recipient_intakes i WHERE i.recipient_id = new.recipient_id);
    RETURN new;
END
$$;
-- +goose StatementEnd

-- +goose StatementBegin
CREATE OR REPLACE FUNCTION email_gateway_count_added_intakes() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp SET standard_conforming_strings = on AS $$
BEGIN
    INSERT INTO quota_deltas (company_id, recipients) SELECT company_id, count(*) FROM added WHERE counted GROUP BY company_id;
    RETURN NULL;
END
$$;
-- +goose StatementEnd

-- +goose StatementBegin
CREATE OR REPLACE FUNCTION email_gateway_count_gone_intakes() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp SET standard_conforming_strings = on AS $$
BEGIN
    INSERT INTO quota_deltas (company_id, recipients) SELECT company_id, -count(*) FROM gone WHERE counted GROUP BY company_id;
    RETURN NULL;
END
$$;
-- +goose StatementEnd

-- +goose StatementBegin
CREATE OR REPLACE FUNCTION email_gateway_count_added_suppressions() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp SET standard_conforming_strings = on AS $$
BEGIN
    INSERT INTO quota_deltas (company_id, suppressions) SELECT company_id, count(*) FROM added GROUP BY company_id;
    RETURN NULL;
END
$$;
-- +goose StatementEnd

-- +goose StatementBegin
CREATE OR REPLACE FUNCTION email_gateway_count_gone_suppressions() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp SET standard_conforming_strings = on AS $$
BEGIN
    INSERT INTO quota_deltas (company_id, suppressions) SELECT company_id, -count(*) FROM gone GROUP BY company_id;
    RETURN NULL;
END
$$;
-- +goose StatementEnd

-- A change of a body or of deleted_at is rare: a trigger for rows, whose condition the
-- updates of every email's way are checked against without a call of the function.
CREATE OR REPLACE TRIGGER email_outbox_count_added AFTER INSERT ON email_outbox
    REFERENCING NEW TABLE AS added FOR EACH STATEMENT EXECUTE FUNCTION email_gateway_count_added_emails();
CREATE OR REPLACE TRIGGER email_outbox_count_gone AFTER DELETE ON email_outbox
    REFERENCING OLD TABLE AS gone FOR EACH STATEMENT EXECUTE FUNCTION email_gateway_count_gone_emails();
CREATE OR REPLACE TRIGGER email_outbox_count_changed AFTER UPDATE OF html, text_body ON email_outbox FOR EACH ROW
    WHEN (octet_length(old.html) IS DISTINCT FROM octet_length(new.html) OR octet_length(old.text_body) IS DISTINCT FROM octet_length(new.text_body))
    EXECUTE FUNCTION email_gateway_count_changed_email();
CREATE OR REPLACE TRIGGER recipients_count_added AFTER INSERT ON recipients
    REFERENCING NEW TABLE AS added FOR EACH STATEMENT EXECUTE FUNCTION email_gateway_count_added_recipients();
CREATE OR REPLACE TRIGGER recipients_count_gone AFTER DELETE ON recipients
    REFERENCING OLD TABLE AS gone FOR EACH STATEMENT EXECUTE FUNCTION email_gateway_count_gone_recipients();
CREATE OR REPLACE TRIGGER recipients_count_changed AFTER UPDATE OF deleted_at ON recipients FOR EACH ROW
    WHEN ((old.deleted_at IS NULL) <> (new.deleted_at IS NULL)) EXECUTE FUNCTION email_gateway_count_changed_recipient();
CREATE OR REPLACE TRIGGER recipient_intakes_mark BEFORE INSERT ON recipient_intakes FOR EACH ROW EXECUTE FUNCTION email_gateway_mark_intake();
CREATE OR REPLACE TRIGGER recipient_intakes_count_added AFTER INSERT ON recipient_intakes
    REFERENCING NEW TABLE AS added FOR EACH STATEMENT EXECUTE FUNCTION email_gateway_count_added_intakes();
CREATE OR REPLACE TRIGGER recipient_intakes_count_gone AFTER DELETE ON recipient_intakes
    REFERENCING OLD TABLE AS gone FOR EACH STATEMENT EXECUTE FUNCTION email_gateway_count_gone_intakes();
CREATE OR REPLACE TRIGGER suppressions_count_added AFTER INSERT ON suppressions
    REFERENCING NEW TABLE AS added FOR EACH STATEMENT EXECUTE FUNCTION email_gateway_count_added_suppressions();
CREATE OR REPLACE TRIGGER suppressions_count_gone AFTER DELETE ON suppressions
    REFERENCING OLD TABLE AS gone FOR EACH STATEMENT EXECUTE FUNCTION email_gateway_count_gone_suppressions();

-- +goose StatementBegin
-- The scheduled emails of a company, counted along email_outbox_lane_claim. An email of a
-- mailing is one after it was moved to a later time.
CREATE OR REPLACE FUNCTION email_gateway_scheduled(company uuid) RETURNS bigint
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp SET standard_conforming_strings = on AS $$
    SELECT count(*) FROM dispatch_lanes l
    JOIN email_outbox o ON o.lane_id = l.id AND o.company_id = l.company_id AND o.status = 'PENDING' AND o.next_at > statement_timestamp()
    WHERE l.company_id = company AND l.queue IN ('email:send:high', 'email:send', 'email:send:low')
$$;
-- +goose StatementEnd

-- +goose StatementBegin
-- The limits of a company and what it uses. resets_at is the next midnight (UTC) for what
-- is counted by the day. Each table is read by its primary key; mailings, when they are
-- asked for, by mailings_running, mailings_company and mailings_stored. It locks nothing.
--
-- Folded deltas are deleted, but a long snapshot keeps their index entries: folded_before
-- skips these. It is never later than the oldest open transaction, whose own deltas count.
-- In a database restored from a dump it may be, and is then not used.
CREATE OR REPLACE FUNCTION email_gateway_use(company uuid, of_mailings boolean)
RETURNS TABLE (quota text, own boolean, most bigint, used bigint, resets_at timestamptz)
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp SET standard_conforming_strings = on AS $$
    WITH today AS (
        SELECT (now() AT TIME ZONE 'UTC')::date AS day, date_trunc('day', now(), 'UTC') AS begun, date_trunc('day', now(), 'UTC') + interval '1 day' AS over
    ), counted AS (
        SELECT greatest(0, CASE WHEN t.day = y.day THEN t.emails ELSE 0 END + d.emails) AS emails,
               greatest(0, coalesce(t.scheduled, 0) + d.scheduled) AS scheduled, greatest(0, coalesce(t.body_bytes, 0) + d.body_bytes) AS body_bytes,
               greatest(0, coalesce(t.recipients, 0) + d.recipients) AS recipients, greatest(0, coalesce(t.suppressions, 0) + d.suppressions) AS suppressions
        FROM today y LEFT JOIN quota_totals t ON t.company_id = company
        CROSS JOIN LATERAL (
            SELECT coalesce(sum(d.emails) FILTER (WHERE d.day = y.day), 0)::bigint AS emails, coalesce(sum(d.scheduled), 0)::bigint AS scheduled,
                   coalesce(sum(d.body_bytes), 0)::bigint AS body_bytes, coalesce(sum(d.recipients), 0)::bigint AS recipients,
                   coalesce(sum(d.suppressions), 0)::bigint AS suppressions
            FROM quota_deltas d WHERE d.company_id = company
              AND d.xid >= CASE WHEN t.folded_before <= pg_snapshot_xmin(pg_current_snapshot()) THEN t.folded_before ELSE '0' END) d
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
            SELECT coalesce(sum(m.file_bytes), 0)::bigint FROM mailings m WHERE m.company_id = company AND m.file_deleted_at IS NULL AND m.file_bytes > 0) ELSE 0 END, NULL),
        ('running_mailings', c.running_mailings, q.running_mailings, CASE WHEN of_mailings THEN (
            SELECT count(*) FROM mailings m WHERE m.company_id = company AND m.status IN ('QUEUED', 'PENDING', 'PROCESSING', 'SENDING')) ELSE 0 END, NULL),
        ('mailing_rows_per_day', c.mailing_rows_per_day, q.mailing_rows_per_day, CASE WHEN of_mailings THEN (
            SELECT coalesce(sum(m.total_lines), 0) FROM mailings m WHERE m.company_id = company AND m.id >= first_id_at(y.begun)) ELSE 0 END, y.over)
    ) AS x (quota, own, usual, used, resets_at)
$$;
-- +goose StatementEnd

-- +goose StatementBegin
-- Refuses an email of a program that would exceed a quota of its company. It waits for no
-- other transaction, so programs that write at the same time may exceed a quota by what
-- they have not committed yet. Somebody new, told by adds_person, is refused when the
-- company's recipients are all there may be.
CREATE OR REPLACE FUNCTION email_gateway_check_quotas(company uuid, scheduled bigint, emails bigint, body_bytes bigint, adds_person boolean) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp SET standard_conforming_strings = on AS $$
DECLARE
    u record;
BEGIN
    FOR u IN
        SELECT e.quota, e.most, e.used, e.resets_at, CASE e.quota WHEN 'scheduled_emails' THEN scheduled WHEN 'emails_per_day' THEN emails
               WHEN 'stored_body_bytes' THEN body_bytes WHEN 'recipients' THEN adds_person::int ELSE 0 END AS more
        FROM email_gateway_use(company, false) e
    LOOP
        CONTINUE WHEN u.most = 0 OR u.more = 0 OR u.used + u.more <= u.most;
        IF u.quota = 'scheduled_emails' THEN
            u.used := email_gateway_scheduled(company);
            CONTINUE WHEN u.used + u.more <= u.most;
        END IF;
        RAISE EXCEPTION 'quota % is exceeded: limit %, use %, reset %', u.quota, u.most, u.used,
            coalesce(to_char(u.resets_at AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS"Z"'), 'none')
            USING ERRCODE = 'EG429', DETAIL = jsonb_build_object('quota', u.quota, 'limit', u.most, 'use', u.used, 'reset', u.resets_at);
    END LOOP;
END
$$;
-- +goose StatementEnd

-- +goose StatementBegin
-- Counts an email, held by the caller, that is moved to a later time and was due before.
CREATE OR REPLACE FUNCTION email_gateway_schedule(company uuid, mail uuid, due timestamptz) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp SET standard_conforming_strings = on AS $$
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
-- +goose StatementEnd

REVOKE ALL ON FUNCTION email_gateway_scheduled(uuid), email_gateway_use(uuid, boolean), email_gateway_check_quotas(uuid, bigint, bigint, bigint, boolean),
    email_gateway_schedule(uuid, uuid, timestamptz), email_gateway_count_added_emails(), email_gateway_count_gone_emails(), email_gateway_count_changed_email(),
    email_gateway_count_added_recipients(), email_gateway_count_gone_recipients(), email_gateway_count_changed_recipient(), email_gateway_mark_intake(),
    email_gateway_count_added_intakes(), email_gateway_count_gone_intakes(), email_gateway_count_added_suppressions(), email_gateway_count_gone_suppressions() FROM PUBLIC;

-- The functions for programs check the quotas before they write. One line is added to each,
-- whatever the other lines are.
-- +goose StatementBegin
DO $$
DECLARE
    change record;
    was text;
    is_now text;
BEGIN
    FOR change IN VALUES
        ('email_gateway_enqueue(uuid, text, text, text, jsonb, timestamptz, interval, text)',
         E'    SELECT l.id INTO lane FROM dispatch_lanes l\n',
         E'    PERFORM email_gateway_check_quotas(company, (due > accepted_at)::int, 1, octet_length(body ->> \'html\') + coalesce(octet_length(body ->> \'text\'), 0), person IS NULL);\n'),
        ('email_gateway_reschedule(uuid, text, text, text, timestamptz, interval)',
         E'        PERFORM email_gateway_move(mail, moment, greatest(moment, send_at), ttl);\n',
         E'        PERFORM email_gateway_schedule(company, mail, send_at);\n')
    LOOP
        was := pg_get_functiondef(change.column1::regprocedure);
        CONTINUE WHEN strpos(was, change.column3) > 0;
        is_now := replace(was, change.column2, change.column3 || change.column2);
        IF is_now = was THEN
            RAISE EXCEPTION '% is not the function that this migration knows', change.column1;
        END IF;
        EXECUTE is_now;
    END LOOP;
END
$$;
-- +goose StatementEnd

-- What is there already, less what the triggers have counted by now: one statement, one
-- snapshot.
-- +goose StatementBegin
WITH emails AS (
    SELECT company_id, sum(coalesce(octet_length(html), 0) + coalesce(octet_length(text_body), 0)) AS body_bytes,
           count(*) FILTER (WHERE created_at >= date_trunc('day', now(), 'UTC')) AS emails
    FROM email_outbox WHERE target = 'email:send' GROUP BY company_id
), people AS (
    SELECT company_id, count(*) AS recipients FROM recipients WHERE deleted_at IS NULL GROUP BY company_id
), suppressed AS (
    SELECT company_id, count(*) AS suppressions FROM suppressions GROUP BY company_id
), counted AS (
    SELECT company_id, sum(emails) FILTER (WHERE day = (now() AT TIME ZONE 'UTC')::date) AS emails, sum(scheduled) AS scheduled, sum(body_bytes) AS body_bytes,
           sum(recipients) AS recipients, sum(suppressions) AS suppressions
    FROM quota_deltas GROUP BY company_id
)
INSERT INTO quota_totals (company_id, day, emails, scheduled, scheduled_at, body_bytes, recipients, suppressions)
SELECT c.id, (now() AT TIME ZONE 'UTC')::date, coalesce(e.emails, 0) - coalesce(d.emails, 0), email_gateway_scheduled(c.id) - coalesce(d.scheduled, 0), now(),
       coalesce(e.body_bytes, 0) - coalesce(d.body_bytes, 0), coalesce(p.recipients, 0) - coalesce(d.recipients, 0), coalesce(s.suppressions, 0) - coalesce(d.suppressions, 0)
FROM companies c LEFT JOIN emails e ON e.company_id = c.id LEFT JOIN people p ON p.company_id = c.id LEFT JOIN suppressed s ON s.company_id = c.id
LEFT JOIN counted d ON d.company_id = c.id
ON CONFLICT (company_id) DO UPDATE SET day = excluded.day, emails = excluded.emails, scheduled = excluded.scheduled, scheduled_at = excluded.scheduled_at,
    body_bytes = excluded.body_bytes, recipients = excluded.recipients, suppressions = excluded.suppressions;
-- +goose StatementEnd

RESET lock_timeout;

-- +goose Down

-- +goose StatementBegin
DO $$
DECLARE
    change record;
    was text;
BEGIN
    FOR change IN VALUES
        ('email_gateway_enqueue(uuid, text, text, text, jsonb, timestamptz, interval, text)', '\n[^\n]*email_gateway_check_quotas[^\n]*'),
        ('email_gateway_reschedule(uuid, text, text, text, timestamptz, interval)', '\n[^\n]*email_gateway_schedule\([^\n]*')
    LOOP
        was := pg_get_functiondef(change.column1::regprocedure);
        EXECUTE regexp_replace(was, change.column2, '', 'g');
    END LOOP;
END
$$;
-- +goose StatementEnd
DROP TRIGGER IF EXISTS email_outbox_count_added ON email_outbox;
DROP TRIGGER IF EXISTS email_outbox_count_gone ON email_outbox;
DROP TRIGGER IF EXISTS email_outbox_count_changed ON email_outbox;
DROP TRIGGER IF EXISTS recipients_count_added ON recipients;
DROP TRIGGER IF EXISTS recipients_count_gone ON recipients;
DROP TRIGGER IF EXISTS recipients_count_changed ON recipients;
DROP TRIGGER IF EXISTS recipient_intakes_mark ON recipient_intakes;
DROP TRIGGER IF EXISTS recipient_intakes_count_added ON recipient_intakes;
DROP TRIGGER IF EXISTS recipient_intakes_count_gone ON recipient_intakes;
DROP TRIGGER IF EXISTS suppressions_count_added ON suppressions;
DROP TRIGGER IF EXISTS suppressions_count_gone ON suppressions;
DROP FUNCTION IF EXISTS email_gateway_schedule(uuid, uuid, timestamptz), email_gateway_check_quotas(uuid, bigint, bigint, bigint, boolean),
    email_gateway_use(uuid, boolean), email_gateway_scheduled(uuid), email_gateway_count_added_emails(), email_gateway_count_gone_emails(),
    email_gateway_count_changed_email(), email_gateway_count_added_recipients(), email_gateway_count_gone_recipients(), email_gateway_count_changed_recipient(),
    email_gateway_mark_intake(), email_gateway_count_added_intakes(), email_gateway_count_gone_intakes(), email_gateway_count_added_suppressions(),
    email_gateway_count_gone_suppressions();
DROP INDEX CONCURRENTLY IF EXISTS mailings_stored;
DROP INDEX CONCURRENTLY IF EXISTS mailings_running;
ALTER TABLE recipient_intakes DROP COLUMN IF EXISTS counted;
ALTER TABLE mailings DROP COLUMN IF EXISTS waiting_for, DROP COLUMN IF EXISTS waiting_until, DROP COLUMN IF EXISTS file_bytes;
DROP TABLE IF EXISTS quota_deltas, quota_totals, company_quotas, quota_defaults;
