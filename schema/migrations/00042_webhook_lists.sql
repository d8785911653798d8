-- The list of an endpoint's deliveries by status.

-- +goose Up

SET LOCAL lock_timeout = '3s';

-- An endpoint that fails now and then has many deliveries that were repeated, and few that failed.
CREATE INDEX webhook_deliveries_status ON webhook_deliveries (endpoint_id, status, id);

-- +goose Down

DROP INDEX webhook_deliveries_status;
