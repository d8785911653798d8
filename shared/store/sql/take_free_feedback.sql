-- Generated from take_feedback.sql.tmpl and Go's description of the parameters by go generate: do not edit.
--
-- Takes notifications of the provider, each about another email: it locks the email's rows, inserts the notification into
-- ses_events unless it exists, and returns the notifications that match an email. A notification that matches none is not
-- inserted: nothing reads it, and another program that sends through the same configuration set may cause any number.
--
-- A copy of a database has the original's emails and companies, and "installation detach" gives it another installation
-- id: an event about an attempt that this database lacks matches only in the installation that sent the email. Emails
-- of earlier releases have no such tag.
--
-- A notification whose email another transaction has locked is not taken and comes back as locked, so that no other
-- notification of the group waits for it. take_feedback.sql is the same statement for one notification, which waits.
-- If another transaction is inserting the same notification, the statement waits for that transaction.
--
-- The locks keep what read_feedback.sql reads until the commit. An outbox row is locked before its log, as advance.sql
-- does.
--
-- Parameters; from $4 on, each array has one element per row:
--   $1   count                bigint
--   $2   first_id             uuid
--   $3   last_id              uuid
--   $4   notification_id      text[]
--   $5   kind                 text[]
--   $6   ses_message_id       text[]
--   $7   outbox_id            uuid[]
--   $8   attempt_id           uuid[]
--   $9   company_id           uuid[]
--   $10  installation_id      uuid[]
--   $11  payload              jsonb[]
--   $12  occurred_at          timestamptz[]
--
-- EXPLAIN EXECUTE take_free_feedback (0, '00000000-0000-0000-0000-000000000000', '00000000-0000-0000-0000-000000000000', '{}', '{}', '{}', '{}', '{}', '{}', '{}', '{}', '{}');
WITH
-- emails locks the rows of email_outbox (by primary key). The CASE in the join keeps the planner from beginning with
-- email_outbox after statistics of a few rows.
emails AS MATERIALIZED (
    SELECT o.id, o.company_id
    FROM (SELECT * FROM unnest($7::uuid[]) AS t(outbox_id) WHERE outbox_id IS NOT NULL LIMIT $1 /* count */) t
    JOIN email_outbox o ON o.id = t.outbox_id AND CASE WHEN t.outbox_id IS NOT NULL THEN o.target = 'email:send' END
    FOR UPDATE OF o SKIP LOCKED
),

-- logs locks the rows of email_logs (by primary key, as advance.sql reads them) of emails whose outbox row is
-- locked by emails or does not exist.
logs AS MATERIALIZED (
    SELECT l.outbox_id, l.company_id
    FROM (SELECT * FROM unnest($7::uuid[]) AS t(outbox_id) WHERE outbox_id IS NOT NULL AND (SELECT count(*) FROM emails) >= 0 LIMIT $1 /* count */) t
    LEFT JOIN email_outbox o ON o.id = t.outbox_id AND CASE WHEN t.outbox_id IS NOT NULL THEN o.target = 'email:send' END
    CROSS JOIN LATERAL (
        SELECT outbox_id, company_id FROM email_logs
        WHERE outbox_id BETWEEN t.outbox_id AND t.outbox_id
          AND outbox_id >= CASE WHEN now() IS NOT NULL THEN $2::uuid /* first_id */ END
          AND outbox_id <= CASE WHEN now() IS NOT NULL THEN $3::uuid /* last_id */ END
        ORDER BY outbox_id LIMIT 1
        FOR UPDATE SKIP LOCKED
    ) l
    WHERE o.id IS NULL OR o.id IN (SELECT id FROM emails)
),

-- locked are the emails with a row that exists (by primary key, no lock) and could not be locked.
locked AS MATERIALIZED (
    SELECT t.outbox_id
    FROM (SELECT * FROM unnest($7::uuid[]) AS t(outbox_id) WHERE outbox_id IS NOT NULL LIMIT $1 /* count */) t
    WHERE t.outbox_id NOT IN (SELECT id FROM emails)
          AND EXISTS (SELECT FROM email_outbox o WHERE o.id = t.outbox_id AND CASE WHEN t.outbox_id IS NOT NULL THEN o.target = 'email:send' END)
       OR t.outbox_id NOT IN (SELECT outbox_id FROM logs)
          AND EXISTS (SELECT FROM email_logs l WHERE l.outbox_id BETWEEN t.outbox_id AND t.outbox_id
                        AND l.outbox_id >= CASE WHEN now() IS NOT NULL THEN $2::uuid /* first_id */ END
                        AND l.outbox_id <= CASE WHEN now() IS NOT NULL THEN $3::uuid /* last_id */ END)
),

-- matched are the notifications about emails of their company. installation is read by primary key, and the timeline, whose
-- length is bounded, by the first column of its primary key.
matched AS MATERIALIZED (
    SELECT t.notification_id, t.outbox_id
    FROM (SELECT * FROM unnest(
        $4::text[], -- notification_id
        $7::uuid[], -- outbox_id
        $8::uuid[], -- attempt_id
        $9::uuid[], -- company_id
        $10::uuid[] -- installation_id
    ) AS t(notification_id, outbox_id, attempt_id, company_id, installation_id) WHERE outbox_id IS NOT NULL LIMIT $1 /* count */) t
    LEFT JOIN emails ON emails.id = t.outbox_id
    LEFT JOIN logs ON logs.outbox_id = t.outbox_id
    WHERE coalesce(emails.company_id, logs.company_id) = t.company_id
      AND t.outbox_id NOT IN (SELECT outbox_id FROM locked)
      AND (coalesce(t.installation_id = (SELECT id FROM installation WHERE singleton), true)
           OR (SELECT bool_or(type = 'SENT_ATTEMPT' AND metadata ->> 'attemptId' = t.attempt_id::text)
               FROM email_events
               WHERE email_log_id = t.outbox_id
                 AND email_log_id >= CASE WHEN now() IS NOT NULL THEN $2::uuid /* first_id */ END
                 AND email_log_id <= CASE WHEN now() IS NOT NULL THEN $3::uuid /* last_id */ END))
),

-- taken inserts the matched notifications. Earlier releases also stored unmatched ones, without applied_at.
taken AS (
    INSERT INTO ses_events (sns_message_id, kind, ses_message_id, outbox_id, attempt_id, payload, occurred_at)
    SELECT notification_id, kind, ses_message_id, outbox_id, attempt_id, payload, occurred_at
    FROM unnest(
        $4::text[],        -- notification_id
        $5::text[],        -- kind
        $6::text[],        -- ses_message_id
        $7::uuid[],        -- outbox_id
        $8::uuid[],        -- attempt_id
        $9::uuid[],        -- company_id
        $10::uuid[],       -- installation_id
        $11::jsonb[],      -- payload
        $12::timestamptz[] -- occurred_at
    ) AS t(notification_id, kind, ses_message_id, outbox_id, attempt_id, company_id, installation_id,
           payload, occurred_at)
    WHERE notification_id IN (SELECT notification_id FROM matched)
    ON CONFLICT (sns_message_id) DO UPDATE SET kind = excluded.kind WHERE ses_events.applied_at IS NULL
    RETURNING sns_message_id
)

SELECT m.notification_id, m.outbox_id, t.sns_message_id IS NULL AS repeated, false AS locked
FROM matched m LEFT JOIN taken t ON t.sns_message_id = m.notification_id
UNION ALL
SELECT '', outbox_id, false, true FROM locked
