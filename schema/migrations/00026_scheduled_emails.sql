-- Which emails are scheduled: those whose log has a send_at (00025).
--
-- Programs of the release before run beside this. An email that they schedule after this has no
-- send_at until it is moved.

-- +goose NO TRANSACTION
-- +goose Up

-- What waits gets its send_at: next_at is that time for an email that nothing has happened to.
-- It locks the logs of these emails, which nobody else writes before they are due, for one
-- statement. It reads the outbox once and finds logs by primary key. It can be run again.
UPDATE email_logs g SET send_at = o.next_at
FROM email_outbox o
WHERE o.status = 'PENDING' AND o.attempts = 0 AND o.next_at > now() AND g.outbox_id = o.id AND g.event_seq = 0 AND g.send_at IS NULL;

-- An email of a mailing is scheduled if it was moved to a later time. Others of a mailing wait
-- for other reasons, such as a fault, and are counted by no quota of scheduled emails.
-- +goose StatementBegin
CREATE OR REPLACE FUNCTION email_gateway_scheduled(company uuid) RETURNS bigint
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp SET standard_conforming_strings = on AS $$
    SELECT count(*) FROM dispatch_lanes l
    JOIN email_outbox o ON o.lane_id = l.id AND o.company_id = l.company_id AND o.status = 'PENDING' AND o.next_at > statement_timestamp()
    WHERE l.company_id = company AND l.queue IN ('email:send:high', 'email:send', 'email:send:low')
      AND (l.mailing_id IS NULL OR EXISTS (SELECT FROM email_logs g WHERE g.outbox_id = o.id AND g.company_id = company AND g.send_at > statement_timestamp()))
$$;
-- +goose StatementEnd

-- +goose Down
-- +goose StatementBegin
CREATE OR REPLACE FUNCTION email_gateway_scheduled(company uuid) RETURNS bigint
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp SET standard_conforming_strings = on AS $$
    SELECT count(*) FROM dispatch_lanes l
    JOIN email_outbox o ON o.lane_id = l.id AND o.company_id = l.company_id AND o.status = 'PENDING' AND o.next_at > statement_timestamp()
    WHERE l.company_id = company AND l.queue IN ('email:send:high', 'email:send', 'email:send:low')
$$;
-- +goose StatementEnd
