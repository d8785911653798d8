-- Scheduled emails are counted in bounded steps. A request of a company that is close to its quota of scheduled emails counted all
-- of them while it held the lock of the company's quotas: with millions of them it ran into its timeout, and so did the company's
-- other requests. A request now counts at most 100,000. The dispatcher counts more than that, a page at a time and without the lock.
--
-- email_gateway_scheduled(uuid) has no bound. Programs of the previous release call it.

-- +goose Up

-- +goose StatementBegin
-- Counts a page of a company's scheduled emails: of the most emails after (lane, due, mail), along email_outbox_lane_claim, those
-- that email_gateway_scheduled(uuid) counts and that have an id before newest. It returns the position of the last one, and in seen
-- how many emails it has read: fewer than most if there are no more. The first page starts at lane 0.
CREATE FUNCTION email_gateway_scheduled_page(company uuid, newest uuid, most bigint, INOUT lane bigint, INOUT due timestamptz, INOUT mail uuid, OUT seen bigint, OUT scheduled bigint)
LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp SET standard_conforming_strings = on AS $$
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
-- +goose StatementEnd

-- +goose StatementBegin
-- The number of a company's scheduled emails, or NULL if it takes too long to count them under a lock: if they may be more than
-- 100,000 by used, the number in use so far, or if so many emails wait in the lanes of the company. Counting 100,000 takes about 50 ms.
CREATE FUNCTION email_gateway_count_scheduled(company uuid, used bigint) RETURNS bigint
LANGUAGE plpgsql STABLE STRICT SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp SET standard_conforming_strings = on AS $$
DECLARE
    most CONSTANT bigint := 100000;
BEGIN
    IF used > most THEN
        RETURN NULL;
    END IF;
    RETURN (SELECT p.scheduled FROM email_gateway_scheduled_page(company, 'ffffffff-ffff-ffff-ffff-ffffffffffff', most + 1, 0, NULL, NULL) p WHERE p.seen <= most);
END
$$;
-- +goose StatementEnd

-- +goose StatementBegin
-- Counts a company's scheduled emails again, if that does not take too long, and updates the row of quota_totals that the caller has
-- locked. Count and deltas are read in one snapshot. The next count is made pause, and 10 µs per email, later at the earliest. If few
-- emails are in use and too many wait, scheduled_at becomes the epoch: no request counts again before the dispatcher has counted.
CREATE FUNCTION email_gateway_recount_scheduled(company uuid, pause interval) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp SET standard_conforming_strings = on AS $$
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
-- +goose StatementEnd
REVOKE ALL ON FUNCTION email_gateway_scheduled_page(uuid, uuid, bigint, bigint, timestamptz, uuid), email_gateway_count_scheduled(uuid, bigint),
    email_gateway_recount_scheduled(uuid, interval) FROM PUBLIC;

-- +goose StatementBegin
-- The function of 00031_quota_gaps.sql with counts that are bounded: where these were, it calls the functions above.
DO $$
DECLARE
    change record;
    is_now text := pg_get_functiondef('email_gateway_check_quotas(uuid, bigint, bigint, bigint, boolean)'::regprocedure);
BEGIN
    FOR change IN VALUES
        (E'    UPDATE quota_totals t SET scheduled_at = clock_timestamp(),\n'
         || E'        scheduled = email_gateway_scheduled(company) - (SELECT coalesce(sum(d.scheduled), 0) FROM quota_deltas d WHERE d.company_id = company)\n'
         || E'    WHERE email_gateway_check_quotas.scheduled > 0 AND t.company_id = company\n'
         || E'      AND coalesce(t.scheduled_at + interval \'1 s\' + greatest(t.scheduled, 0) * interval \'10 us\' < clock_timestamp(), true);\n',
         E'    IF email_gateway_check_quotas.scheduled > 0 THEN\n        PERFORM email_gateway_recount_scheduled(company, interval \'1 s\');\n    END IF;\n'),
        ('u.used := email_gateway_scheduled(company);', 'u.used := coalesce(email_gateway_count_scheduled(company, u.used), u.used);')
    LOOP
        IF strpos(is_now, change.column1) = 0 THEN
            RAISE EXCEPTION 'email_gateway_check_quotas is not the function that this migration knows';
        END IF;
        is_now := replace(is_now, change.column1, change.column2);
    END LOOP;
    EXECUTE is_now;
END
$$;
-- +goose StatementEnd

-- +goose Down

-- +goose StatementBegin
DO $$
DECLARE
    change record;
    was text := pg_get_functiondef('email_gateway_check_quotas(uuid, bigint, bigint, bigint, boolean)'::regprocedure);
BEGIN
    FOR change IN VALUES
        (E'    IF email_gateway_check_quotas.scheduled > 0 THEN\n        PERFORM email_gateway_recount_scheduled(company, interval \'1 s\');\n    END IF;\n',
         E'    UPDATE quota_totals t SET scheduled_at = clock_timestamp(),\n'
         || E'        scheduled = email_gateway_scheduled(company) - (SELECT coalesce(sum(d.scheduled), 0) FROM quota_deltas d WHERE d.company_id = company)\n'
         || E'    WHERE email_gateway_check_quotas.scheduled > 0 AND t.company_id = company\n'
         || E'      AND coalesce(t.scheduled_at + interval \'1 s\' + greatest(t.scheduled, 0) * interval \'10 us\' < clock_timestamp(), true);\n'),
        ('u.used := coalesce(email_gateway_count_scheduled(company, u.used), u.used);', 'u.used := email_gateway_scheduled(company);')
    LOOP
        was := replace(was, change.column1, change.column2);
    END LOOP;
    EXECUTE was;
END
$$;
-- +goose StatementEnd
DROP FUNCTION email_gateway_recount_scheduled(uuid, interval), email_gateway_count_scheduled(uuid, bigint),
    email_gateway_scheduled_page(uuid, uuid, bigint, bigint, timestamptz, uuid);
