-- A role for each program, with only the grants that its statements need. It may run repeatedly,
-- and must run after every migration: a new table has no grants until it is listed here.
-- shared/store/roles_test.go compares the grants with the statements.
--
-- The roles have no password. `migrate roles` sets passwords from variables (GATEWAY_API_PASSWORD
-- for gateway_api); without one, configure another authentication in pg_hba.conf. The tables' owner
-- runs migrations.

DO $$
DECLARE
    name text;
    granted text;
BEGIN
    FOREACH name IN ARRAY '{gateway_api,gateway_dispatcher,gateway_worker,gateway_operator,gateway_privacy,gateway_program}'::text[] LOOP
        -- Roles are the server's: another database may have brought them. Postgres refuses CREATE ROLE to a caller that
        -- may not create roles even if the role exists.
        IF NOT EXISTS (SELECT FROM pg_roles WHERE rolname = name) THEN
            BEGIN
                EXECUTE format('CREATE ROLE %I %s NOSUPERUSER NOCREATEDB NOCREATEROLE NOREPLICATION', name,
                    CASE name WHEN 'gateway_program' THEN 'NOLOGIN' ELSE 'LOGIN' END);
            EXCEPTION WHEN duplicate_object OR unique_violation THEN
                NULL; -- another caller created it meanwhile
            END;
        END IF;
        -- Only what the role has: REVOKE fails for objects of others, such as an extension's, on which the caller has no
        -- rights.
        FOR granted IN
            SELECT 'TABLE ' || c.oid::regclass FROM pg_class c
            WHERE c.relnamespace = 'public'::regnamespace AND c.relkind IN ('r', 'p', 'v', 'm', 'f') AND pg_has_role(c.relowner, 'USAGE')
              AND (EXISTS (SELECT FROM aclexplode(c.relacl) a WHERE a.grantee = name::regrole)
                   OR EXISTS (SELECT FROM pg_attribute t CROSS JOIN aclexplode(t.attacl) a WHERE t.attrelid = c.oid AND a.grantee = name::regrole))
            UNION ALL
            SELECT 'ROUTINE ' || p.oid::regprocedure FROM pg_proc p
            WHERE p.pronamespace = 'public'::regnamespace AND pg_has_role(p.proowner, 'USAGE')
              AND EXISTS (SELECT FROM aclexplode(p.proacl) a WHERE a.grantee = name::regrole)
        LOOP
            EXECUTE format('REVOKE ALL ON %s FROM %I', granted, name);
        END LOOP;
        EXECUTE format('REVOKE ALL ON SCHEMA public FROM %I', name);
        EXECUTE format('GRANT USAGE ON SCHEMA public TO %I', name);
    END LOOP;
END
$$;

-- Session settings of the programs. PgBouncer refuses startup parameters that it does not know, or
-- ignores those listed in ignore_startup_parameters, so the roles carry them. They abort idle
-- transactions after 5 s, limit the time of statements, make plans use indexes (see prepared.go in
-- shared/store/internal/pg), and deliver the warning that no standby confirmed a commit. A setting that a role
-- already has is kept, except for the last three, without which statements have other effects: isolation level,
-- schema and time zone. If the caller may not alter a role, the role keeps its settings and a
-- warning is printed.
DO $$
DECLARE
    name text;
    setting text;
    required CONSTANT text[] := ARRAY['default_transaction_isolation=read committed', 'search_path=public', 'TimeZone=UTC'];
BEGIN
    FOREACH name IN ARRAY '{gateway_api,gateway_dispatcher,gateway_worker,gateway_operator,gateway_privacy}'::text[] LOOP
        FOREACH setting IN ARRAY ARRAY['idle_in_transaction_session_timeout=5s', CASE name WHEN 'gateway_api' THEN 'statement_timeout=10s' ELSE 'statement_timeout=30s' END,
                                       'enable_seqscan=off', 'jit=off', 'client_min_messages=notice'] || required LOOP
            CONTINUE WHEN EXISTS (SELECT FROM pg_roles, unnest(rolconfig) AS own
                                  WHERE rolname = name AND (own = setting OR setting <> ALL (required) AND starts_with(own, split_part(setting, '=', 1) || '=')))
                AND (setting <> ALL (required) OR NOT EXISTS (
                    SELECT FROM pg_db_role_setting d JOIN pg_database b ON b.oid = d.setdatabase JOIN pg_roles r ON r.oid = d.setrole, unnest(d.setconfig) AS own
                    WHERE b.datname = current_database() AND r.rolname = name AND starts_with(own, split_part(setting, '=', 1) || '=')));
            BEGIN
                EXECUTE format('ALTER ROLE %I SET %I = %L', name, split_part(setting, '=', 1), split_part(setting, '=', 2));
                IF setting = ANY (required) THEN -- a value for this database would take precedence
                    EXECUTE format('ALTER ROLE %I IN DATABASE %I RESET %I', name, current_database(), split_part(setting, '=', 1));
                END IF;
            EXCEPTION
                WHEN internal_error OR unique_violation THEN
                    NULL; -- another one is setting it at the same time
                WHEN insufficient_privilege THEN
                    RAISE WARNING 'role %: % is not set, as % may not alter it', name, setting, current_user;
                    EXIT;
            END;
        END LOOP;
    END LOOP;
END
$$;
REVOKE CREATE ON SCHEMA public FROM PUBLIC; -- as Postgres 15 does in new databases

-- The api accepts and shows data. It creates no company and no key, sends nothing, and does not
-- change the circuit breaker. A cancel or retry uses the single statement of all transitions
-- (advance.sql), which is why some tables are in every list.
GRANT SELECT                         ON companies, api_keys, sender_domains, provider_gate, process_status TO gateway_api;
GRANT SELECT, INSERT                 ON email_events, mailing_rejects, dead_letter_replays TO gateway_api;
GRANT INSERT                         ON mailing_marks TO gateway_api;
GRANT SELECT, INSERT, UPDATE         ON templates, template_totals TO gateway_api;
GRANT SELECT, INSERT, DELETE         ON template_versions TO gateway_api;
GRANT SELECT, INSERT, DELETE         ON template_events TO gateway_api; -- the newest of each template are kept
GRANT SELECT, INSERT, UPDATE         ON stored_files TO gateway_api; -- an email locks the files that it attaches
GRANT SELECT, INSERT                 ON attachments TO gateway_api;
GRANT SELECT, INSERT, UPDATE         ON email_outbox, email_logs, mailings, mailing_entries, dispatch_lanes, recipients,
                                        ses_events, dead_letters TO gateway_api;
GRANT SELECT, INSERT, DELETE         ON recipient_intakes TO gateway_api;
GRANT SELECT, INSERT, UPDATE, DELETE ON suppressions, idempotency_keys TO gateway_api;
GRANT SELECT, INSERT, UPDATE         ON quota_defaults, quota_totals TO gateway_api;
GRANT SELECT                         ON quota_deltas TO gateway_api;
GRANT SELECT                         ON event_feed, event_positions TO gateway_api;
GRANT EXECUTE                        ON FUNCTION email_gateway_history() TO gateway_api;
GRANT SELECT, UPDATE                 ON installation TO gateway_api; -- it records that it has marked the storage

-- All programs that use the file storage compare its marker with the id of the installation.
GRANT SELECT                         ON installation TO gateway_dispatcher, gateway_worker, gateway_operator, gateway_privacy;
GRANT UPDATE                         ON installation TO gateway_operator; -- it gives a copy an id of its own
GRANT EXECUTE                        ON FUNCTION email_gateway_history() TO gateway_operator; -- whether it has done that in this database

-- The dispatcher queues emails, and deletes rows past their retention age. It cannot read keys. The
-- owner owns the partitions: two functions, which refuse young partitions, create and drop them for
-- the dispatcher.
GRANT SELECT                         ON companies, suppressions, company_retention, log_partitions TO gateway_dispatcher;
GRANT SELECT, INSERT                 ON recipient_intakes TO gateway_dispatcher;
GRANT SELECT, UPDATE                 ON dispatch_lanes, mailings, provider_gate TO gateway_dispatcher;
GRANT SELECT, INSERT, UPDATE         ON retention_walks, quota_totals TO gateway_dispatcher;
GRANT SELECT, DELETE                 ON quota_deltas, mailing_feedback TO gateway_dispatcher;
GRANT SELECT, DELETE                 ON mailing_rejects TO gateway_dispatcher;
GRANT SELECT, INSERT, DELETE         ON email_events, dispatch_batches, mailing_marks TO gateway_dispatcher;
GRANT SELECT, DELETE                 ON dropped_tasks TO gateway_dispatcher;
GRANT SELECT, UPDATE, DELETE         ON stored_files TO gateway_dispatcher; -- it locks what it deletes
GRANT SELECT                         ON attachments TO gateway_dispatcher;
GRANT SELECT, UPDATE, DELETE         ON mailing_entries, idempotency_keys, ses_events, dead_letter_replays TO gateway_dispatcher;
GRANT SELECT, INSERT, UPDATE, DELETE ON email_outbox, email_logs, recipients, dead_letters, process_status TO gateway_dispatcher;
GRANT SELECT, UPDATE, DELETE         ON event_feed TO gateway_dispatcher;
GRANT SELECT, UPDATE                 ON event_positions TO gateway_dispatcher; -- the row is also the lock of who assigns positions
GRANT SELECT, DELETE                 ON operator_audit TO gateway_dispatcher; -- a policy keeps two years of it
GRANT EXECUTE ON FUNCTION make_log_partition(text, integer), prove_log_partition(text, integer), drop_log_partition(text, interval), hold_settling(uuid), email_gateway_history() TO gateway_dispatcher;

-- The worker sends. It cannot read keys.
GRANT SELECT                         ON companies, dispatch_lanes, stored_files, attachments TO gateway_worker;
GRANT UPDATE (missing_since)         ON stored_files TO gateway_worker; -- whether it found the object
GRANT UPDATE (paused_at)             ON dispatch_lanes TO gateway_worker; -- of a mailing that becomes FAILED
GRANT INSERT                         ON dropped_tasks, mailing_marks TO gateway_worker;
GRANT SELECT, INSERT                 ON email_events TO gateway_worker;
GRANT SELECT, INSERT, UPDATE         ON ses_events, suppressions TO gateway_worker; -- events of SES from a queue
GRANT SELECT, UPDATE                 ON mailings, mailing_entries, provider_gate TO gateway_worker;
GRANT SELECT, INSERT, UPDATE         ON quota_totals TO gateway_worker;
GRANT SELECT, INSERT, UPDATE         ON email_outbox, email_logs, recipients, dead_letters TO gateway_worker;
GRANT SELECT, DELETE                 ON recipient_intakes TO gateway_worker;
GRANT SELECT, INSERT, UPDATE, DELETE ON process_status, provider_refusals TO gateway_worker;

-- gatewayctl, for operators: companies, keys and domains; waiting rows and reasons.
GRANT SELECT                         ON process_status, operator_audit, goose_db_version, log_partitions TO gateway_operator;
GRANT INSERT (operator, action, company_id, subject, details, reason) ON operator_audit TO gateway_operator; -- not when, and as whom
GRANT SELECT, INSERT                 ON email_events, dead_letter_replays TO gateway_operator;
GRANT INSERT                         ON recipient_intakes, mailing_marks TO gateway_operator;
GRANT SELECT, UPDATE                 ON mailings, mailing_entries, provider_gate TO gateway_operator;
GRANT SELECT, INSERT, UPDATE         ON companies, company_retention, company_quotas, api_keys, dispatch_lanes, email_outbox, email_logs, recipients,
                                        dead_letters TO gateway_operator;
GRANT SELECT, INSERT, DELETE         ON sender_domains, outbox_programs TO gateway_operator;
GRANT SELECT, INSERT, UPDATE, DELETE ON suppressions TO gateway_operator;
GRANT SELECT (kind, received_at, payload) ON ses_events TO gateway_operator; -- whether events arrive, and why SES did not send; payload has masked addresses

-- Webhooks: the api manages endpoints, the worker serves them, the dispatcher deletes old deliveries.
GRANT SELECT, INSERT, UPDATE, DELETE ON webhook_endpoints, webhook_deliveries TO gateway_api;
GRANT SELECT, INSERT                 ON webhook_replays TO gateway_api;
GRANT SELECT, UPDATE                 ON webhook_endpoints, webhook_replays TO gateway_worker;
GRANT SELECT, INSERT, UPDATE         ON webhook_deliveries TO gateway_worker;
GRANT SELECT                         ON event_feed, event_positions TO gateway_worker;
GRANT EXECUTE                        ON FUNCTION email_gateway_history() TO gateway_worker;
GRANT SELECT                         ON event_feed, event_positions TO gateway_api;
GRANT SELECT, UPDATE, DELETE         ON webhook_deliveries, webhook_replays TO gateway_dispatcher; -- it locks what it deletes
GRANT SELECT, UPDATE                 ON webhook_endpoints, webhook_deliveries TO gateway_operator; -- it disables and enables
GRANT SELECT (id)                    ON stored_files TO gateway_operator; -- whether there are any
GRANT SELECT, UPDATE                 ON webhook_endpoints TO gateway_privacy; -- secrets are encrypted again

-- The reputation guard: the dispatcher checks, gatewayctl sets rules and resumes mailings. Triggers record
-- feedback and add events to the feed with the rights of the tables' owner.
GRANT SELECT                         ON company_events TO gateway_api, gateway_worker;
GRANT SELECT, INSERT, UPDATE, DELETE ON company_events TO gateway_dispatcher; -- it locks what it deletes
GRANT SELECT, INSERT                 ON company_events TO gateway_operator; -- a webhook endpoint was disabled
GRANT INSERT                         ON company_events TO gateway_worker;
GRANT UPDATE (mailings_paused_at)    ON companies TO gateway_dispatcher;
GRANT SELECT, UPDATE                 ON reputation_defaults, reputation_guard TO gateway_dispatcher;
GRANT SELECT                         ON company_reputation_rules TO gateway_dispatcher;
GRANT SELECT, UPDATE, DELETE         ON reputation_feedback TO gateway_dispatcher;
GRANT SELECT, INSERT, UPDATE         ON company_reputation TO gateway_dispatcher, gateway_operator;
GRANT SELECT, INSERT, UPDATE, DELETE ON reputation_sends TO gateway_dispatcher;
GRANT SELECT                         ON reputation_defaults, reputation_guard, reputation_feedback TO gateway_operator;
GRANT SELECT, DELETE                 ON reputation_sends TO gateway_operator;
GRANT SELECT, INSERT, UPDATE, DELETE ON company_reputation_rules TO gateway_operator;

-- Usage: the dispatcher counts, the api and operators read. A trigger counts accepted emails.
GRANT SELECT                         ON usage_days, usage_companies, event_feed, event_positions TO gateway_api, gateway_operator;
GRANT SELECT, INSERT, UPDATE         ON usage_days, usage_companies TO gateway_dispatcher;

-- A transition of an email with an aggregate locks its row here FOR SHARE, which requires UPDATE;
-- no role changes one. The api adds them with a function that does only that.
GRANT SELECT, UPDATE                 ON outbox_aggregates TO gateway_api, gateway_dispatcher, gateway_worker, gateway_operator, gateway_privacy;
GRANT DELETE                         ON outbox_aggregates TO gateway_dispatcher;
GRANT SELECT, UPDATE                 ON erased_tasks TO gateway_dispatcher; -- tasks to be removed from Redis, by id
GRANT SELECT (begun_at)              ON person_erasures TO gateway_dispatcher; -- how old the oldest is, and not whom it is about
GRANT EXECUTE ON FUNCTION email_gateway_take_key(uuid, text, text, text, uuid) TO gateway_api;

-- A company's use of its quotas. No other role may call these functions, because they show the use
-- of every company. Triggers count with the rights of the tables' owner.
GRANT EXECUTE ON FUNCTION email_gateway_use(uuid, boolean), email_gateway_scheduled(uuid), email_gateway_count_scheduled(uuid, bigint),
    email_gateway_recount_scheduled(uuid, interval) TO gateway_api, gateway_dispatcher, gateway_worker, gateway_operator;
GRANT EXECUTE ON FUNCTION email_gateway_scheduled_page(uuid, uuid, bigint, bigint, timestamptz, uuid) TO gateway_dispatcher;
GRANT SELECT                         ON quota_defaults, company_quotas TO gateway_dispatcher;
GRANT EXECUTE ON FUNCTION email_gateway_schedule(uuid, uuid, timestamptz) TO gateway_api;

-- Starting a mailing locks its company's quotas.
GRANT SELECT, INSERT, UPDATE         ON quota_totals TO gateway_operator;
GRANT SELECT                         ON quota_deltas TO gateway_operator;

-- A tenant's program that shares the database: its own role is a member of this one and listed in
-- outbox_programs. It has access to no table.
GRANT EXECUTE ON FUNCTION
    email_gateway_enqueue(uuid, text, text, text, jsonb, timestamptz, interval, text),
    email_gateway_reschedule(uuid, text, text, text, timestamptz, interval),
    email_gateway_cancel(uuid, text, text, text)
    TO gateway_program;

-- gatewayctl person and encryption, for operators who are responsible for personal data: it reads
-- personal data in all tables and erases them. It cannot create emails.
GRANT SELECT                         ON companies, dispatch_lanes, provider_gate TO gateway_privacy;
GRANT INSERT (operator, action, company_id, subject, details, reason) ON operator_audit TO gateway_privacy;
GRANT SELECT                         ON idempotency_keys TO gateway_privacy;
GRANT SELECT, INSERT                 ON email_events TO gateway_privacy;
GRANT INSERT                         ON mailing_marks TO gateway_privacy;
GRANT UPDATE (metadata)              ON email_events TO gateway_privacy; -- erases personal data of events; rows are neither inserted nor deleted
GRANT SELECT, UPDATE                 ON mailings, mailing_entries, dead_letter_replays TO gateway_privacy;
GRANT SELECT, DELETE                 ON recipient_intakes TO gateway_privacy;
GRANT SELECT, UPDATE, DELETE         ON stored_files TO gateway_privacy; -- files of erased emails that no other email attaches
GRANT SELECT                         ON attachments TO gateway_privacy;
GRANT SELECT, UPDATE, DELETE         ON suppressions TO gateway_privacy;
GRANT SELECT, INSERT, UPDATE         ON email_logs, dead_letters TO gateway_privacy;
GRANT SELECT, UPDATE, DELETE         ON email_outbox TO gateway_privacy;
GRANT SELECT, INSERT, UPDATE, DELETE ON recipients, erased_tasks TO gateway_privacy;
GRANT SELECT, INSERT, DELETE         ON person_erasures TO gateway_privacy;
GRANT UPDATE (receipt)               ON person_erasures TO gateway_privacy;
GRANT SELECT                         ON ses_events TO gateway_privacy;
GRANT UPDATE (payload)               ON ses_events TO gateway_privacy;
