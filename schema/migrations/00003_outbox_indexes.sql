-- Two of the outbox's indexes take in more rows: the lane claim index those for RabbitMQ,
-- so that every target is found the same way; the expiry index all that are not final,
-- by status, so that what a crash left behind is found as well. They are built beside the
-- old ones, without stopping writes.

-- +goose NO TRANSACTION
-- +goose Up

CREATE INDEX CONCURRENTLY email_outbox_lane_claim_new ON email_outbox (lane_id, next_at, id)
    WHERE status IN ('PENDING', 'RETRY_SCHEDULED');
DROP INDEX CONCURRENTLY email_outbox_lane_claim;
ALTER INDEX email_outbox_lane_claim_new RENAME TO email_outbox_lane_claim;

CREATE INDEX CONCURRENTLY email_outbox_open ON email_outbox (status, expires_at)
    WHERE status IN ('PENDING', 'ENQUEUED', 'PROCESSING', 'RETRY_SCHEDULED', 'OUTCOME_UNKNOWN') AND target = 'email:send';
DROP INDEX CONCURRENTLY email_outbox_expiry;

-- +goose Down

CREATE INDEX CONCURRENTLY email_outbox_expiry ON email_outbox (expires_at)
    WHERE status IN ('PENDING', 'ENQUEUED', 'RETRY_SCHEDULED') AND target = 'email:send';
DROP INDEX CONCURRENTLY email_outbox_open;

CREATE INDEX CONCURRENTLY email_outbox_lane_claim_old ON email_outbox (lane_id, next_at, id)
    WHERE status IN ('PENDING', 'RETRY_SCHEDULED') AND target = 'email:send';
DROP INDEX CONCURRENTLY email_outbox_lane_claim;
ALTER INDEX email_outbox_lane_claim_old RENAME TO email_outbox_lane_claim;
