-- The lane claim index takes in the rows for RabbitMQ, so that every target is found the
-- same way. It is built beside the old one, without stopping writes.

-- +goose NO TRANSACTION
-- +goose Up

CREATE INDEX CONCURRENTLY email_outbox_lane_claim_new ON email_outbox (lane_id, next_at, id)
    WHERE status IN ('PENDING', 'RETRY_SCHEDULED');
DROP INDEX CONCURRENTLY email_outbox_lane_claim;
ALTER INDEX email_outbox_lane_claim_new RENAME TO email_outbox_lane_claim;

-- +goose Down

CREATE INDEX CONCURRENTLY email_outbox_lane_claim_old ON email_outbox (lane_id, next_at, id)
    WHERE status IN ('PENDING', 'RETRY_SCHEDULED') AND target = 'email:send';
DROP INDEX CONCURRENTLY email_outbox_lane_claim;
ALTER INDEX email_outbox_lane_claim_old RENAME TO email_outbox_lane_claim;
