-- A column with the words of a circuit breaker: state has those of a gate, where 'open' lets emails pass.
--
-- The programs of both releases write state. The table has one row, so that the rewrite takes milliseconds.

-- +goose Up

SET LOCAL lock_timeout = '3s';

ALTER TABLE provider_gate ADD COLUMN is_open boolean NOT NULL GENERATED ALWAYS AS (state = 'shut') STORED;

-- +goose Down

SET LOCAL lock_timeout = '3s';

ALTER TABLE provider_gate DROP COLUMN is_open;
