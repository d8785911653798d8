-- A key can expire, and can be bound to networks. Programs of the release before know
-- neither column: a key that expires is also written with revoked_at, which they honour.

-- +goose Up

SET LOCAL lock_timeout = '3s'; -- a backup may use the table for hours

ALTER TABLE api_keys
    ADD COLUMN expires_at timestamptz,                 -- NULL = never
    ADD COLUMN networks   cidr[] NOT NULL DEFAULT '{}'; -- whence it may be used; none = from everywhere

-- +goose Down

ALTER TABLE api_keys DROP COLUMN expires_at, DROP COLUMN networks;
