-- Workers share what they know about senders that the provider refuses.
--
-- A refusal may concern the account or only one sender or one email. The first one opens the circuit breaker, and the accepted
-- probe of another sender shows that the account works. Until now each worker had to learn that anew. Probes begin with the
-- next company after the one whose email opened the breaker.
--
-- Programs of the previous release use neither: what they open and close leaves no record.

-- +goose Up

SET LOCAL lock_timeout = '3s';

ALTER TABLE provider_gate ADD COLUMN opener_company uuid; -- whose email opened it; NULL = unknown, or the account's state did

CREATE TABLE provider_refusals (
    key text PRIMARY KEY,                         -- a sender's address or domain, or the id of an email
    refused_at timestamptz NOT NULL DEFAULT now(),
    disproved boolean NOT NULL DEFAULT false      -- the account has accepted another email since
);

-- +goose Down

SET LOCAL lock_timeout = '3s';

DROP TABLE provider_refusals;
ALTER TABLE provider_gate DROP COLUMN opener_company;
