package tenant

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jmoiron/sqlx"
	"github.com/lib/pq"

	"email-gateway/shared/store/audit"
	"email-gateway/shared/store/internal/pg"
)

// APIKey is a key with which a tenant's program authenticates. The secret itself is never
// stored.
type APIKey struct {
	KeyID         string         `db:"key_id" json:"keyId"`
	CompanyID     uuid.UUID      `db:"company_id" json:"companyId"`
	Name          string         `db:"name" json:"name"`
	Environment   string         `db:"environment" json:"environment"`
	SecretSHA256  []byte         `db:"secret_sha256" json:"-"`
	Scopes        pq.StringArray `db:"scopes" json:"scopes"`
	RatePerSecond int            `db:"rate_per_second" json:"ratePerSecond"` // 0 = no limit
	Burst         int            `db:"burst" json:"burst"`
	CreatedAt     time.Time      `db:"created_at" json:"createdAt"`
	// RevokedAt is when it stops working. It is in the future during the grace period of a rotation;
	// nil = not revoked.
	RevokedAt *time.Time `db:"revoked_at" json:"revokedAt,omitempty"`
	// ExpiresAt is when it expires; nil = never.
	ExpiresAt *time.Time `db:"expires_at" json:"expiresAt,omitempty"`
	// Networks are the client addresses that may use it, as CIDRs; none = all.
	Networks pq.StringArray `db:"networks" json:"networks,omitempty"`
}

// normalize undoes the copy of expires_at in revoked_at, which exists for programs of the previous release:
// they do not read expires_at.
func (k *APIKey) normalize() {
	if k.RevokedAt != nil && k.ExpiresAt != nil && k.RevokedAt.Equal(*k.ExpiresAt) {
		k.RevokedAt = nil
	}
	if len(k.Networks) == 0 {
		k.Networks = nil
	}
}

// Ends returns when the key stops working by RevokedAt or ExpiresAt; the zero time = never.
func (k *APIKey) Ends() time.Time {
	var ends time.Time
	for _, at := range []*time.Time{k.RevokedAt, k.ExpiresAt} {
		if at != nil && (ends.IsZero() || at.Before(ends)) {
			ends = *at
		}
	}
	return ends.UTC()
}

// Expired reports whether the key has expired.
func (k *APIKey) Expired(now time.Time) bool { return k.ExpiresAt != nil && !now.Before(*k.ExpiresAt) }

// Revoked reports whether the key has been revoked.
func (k *APIKey) Revoked(now time.Time) bool { return k.RevokedAt != nil && !now.Before(*k.RevokedAt) }

// Ended reports whether the key has expired or has been revoked.
func (k *APIKey) Ended(now time.Time) bool { return k.Expired(now) || k.Revoked(now) }

const keyColumns = `key_id, company_id, name, environment, secret_sha256, scopes, rate_per_second, burst, created_at, revoked_at, expires_at, networks`

const insertKeySQL = `
INSERT INTO api_keys (key_id, company_id, name, environment, secret_sha256, scopes, rate_per_second, burst, expires_at, revoked_at, networks)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $9, coalesce($10::text[], '{}')::cidr[]) RETURNING ` + keyColumns

// CreateAPIKey adds a key and returns it; CreatedAt and RevokedAt of k are ignored. The caller shows the secret without another
// read, whose failure would lose it.
func (s *Store) CreateAPIKey(ctx context.Context, by audit.Operator, k APIKey) (created APIKey, err error) {
	a := audit.Change{Action: "key.create", Company: k.CompanyID, Subject: k.KeyID, Details: map[string]any{"name": k.Name, "scopes": k.Scopes}}
	if k.ExpiresAt != nil {
		a.Details["expiresAt"] = k.ExpiresAt.UTC().Format(time.RFC3339)
	}
	if len(k.Networks) > 0 {
		a.Details["networks"] = k.Networks
	}
	_, err = audit.Apply(ctx, s.db, by, a, func(tx *sqlx.Tx, _ *audit.Change) error {
		return pg.Translate(tx.GetContext(ctx, &created, insertKeySQL,
			k.KeyID, k.CompanyID, k.Name, k.Environment, k.SecretSHA256, k.Scopes, k.RatePerSecond, k.Burst, k.ExpiresAt, k.Networks))
	})
	if err != nil {
		return APIKey{}, fmt.Errorf("create api key: %w", err)
	}
	created.normalize()
	return created, nil
}

// revokeKeySQL locks one row by primary key, unless the key is revoked already.
const revokeKeySQL = `UPDATE api_keys SET revoked_at = now() WHERE key_id = $1 AND (revoked_at IS NULL OR revoked_at > now()) RETURNING company_id`

// RevokeAPIKey revokes a key. Processes of the api cache keys and reject it within 5 s. Revoking a key
// again changes nothing. It returns pg.ErrNotFound if there is no such key.
func (s *Store) RevokeAPIKey(ctx context.Context, by audit.Operator, keyID string) error {
	_, err := audit.Apply(ctx, s.db, by, audit.Change{Action: "key.revoke", Subject: keyID}, func(tx *sqlx.Tx, a *audit.Change) error {
		return pg.Translate(tx.GetContext(ctx, &a.Company, revokeKeySQL, keyID))
	})
	if errors.Is(err, pg.ErrNotFound) { // no such key, or it is revoked already
		_, err = s.FindCaller(ctx, keyID)
	}
	return pg.Wrap("revoke api key", err)
}

// rotateKeySQL locks the old key by primary key. It creates no successor if the key is revoked already.
// The successor of a key that expires is valid for the same period as the old key originally was.
const rotateKeySQL = `
WITH old AS (
    UPDATE api_keys SET revoked_at = least(coalesce(revoked_at, 'infinity'), now() + $4 * interval '1 ms')
    WHERE key_id = $1 AND (revoked_at IS NULL OR revoked_at > now())
    RETURNING company_id, name, environment, scopes, rate_per_second, burst, networks, now() + (expires_at - created_at) AS ends,
        least(revoked_at, expires_at) AS old_ends
), successor AS (
    INSERT INTO api_keys (key_id, company_id, name, environment, secret_sha256, scopes, rate_per_second, burst, networks, expires_at, revoked_at)
    SELECT $2, company_id, name, environment, $3, scopes, rate_per_second, burst, networks, ends, ends FROM old RETURNING ` + keyColumns + `
)
SELECT s.*, old.old_ends FROM successor s, old`

// Successor is a key that replaces another one.
type Successor struct {
	APIKey
	OldEnds time.Time `db:"old_ends"` // when the replaced key stops working
}

// RotateAPIKey creates a successor of a key with the same permissions and returns it, and revokes the old key after
// grace. It returns pg.ErrNotFound if there is no such key, or it is revoked already.
func (s *Store) RotateAPIKey(ctx context.Context, by audit.Operator, oldID, newID string, secretSHA256 []byte, grace time.Duration) (made Successor, err error) {
	a := audit.Change{Action: "key.rotate", Subject: oldID, Details: map[string]any{"successor": newID, "graceSeconds": int(grace.Seconds())}}
	_, err = audit.Apply(ctx, s.db, by, a, func(tx *sqlx.Tx, a *audit.Change) error {
		err := tx.GetContext(ctx, &made, rotateKeySQL, oldID, newID, secretSHA256, grace.Milliseconds())
		a.Company = made.CompanyID
		return pg.Translate(err)
	})
	if err != nil {
		return Successor{}, fmt.Errorf("rotate api key: %w", err)
	}
	made.normalize()
	made.OldEnds = made.OldEnds.UTC()
	return made, nil
}

// listKeysSQL reads the whole table: a company has a handful of keys.
const listKeysSQL = `
SELECT ` + keyColumns + ` FROM api_keys WHERE company_id = $1 ORDER BY created_at`

// APIKeys lists a company's keys, including revoked ones.
func (s *Store) APIKeys(ctx context.Context, company uuid.UUID) ([]APIKey, error) {
	var keys []APIKey
	if err := s.db.SelectContext(ctx, &keys, listKeysSQL, company); err != nil {
		return nil, fmt.Errorf("list api keys: %w", pg.Translate(err))
	}
	for i := range keys {
		keys[i].normalize()
	}
	return keys, nil
}

// Caller is an API key with the data of its company that a request needs.
type Caller struct {
	APIKey
	DefaultFrom   string         `db:"default_from"`
	Suspended     bool           `db:"suspended"`
	SenderDomains pq.StringArray `db:"sender_domains"`
	// ReadAt is Postgres's time of the read.
	ReadAt time.Time `db:"read_at"`
	asked  time.Time // when the read began, by this process's clock
}

// Now returns the time by Postgres's clock, or up to the duration of the read later. The times at which the key ends are compared
// with it: if they were compared with the clock of a host that is behind, a revoked key would work for as long.
func (c *Caller) Now() time.Time { return c.ReadAt.Add(time.Since(c.asked)) }

// findCallersSQL finds keys and companies by primary key and domains by the first column of
// their primary key. It locks nothing.
const findCallersSQL = `
SELECT k.key_id, k.company_id, k.name, k.environment, k.secret_sha256, k.scopes, k.rate_per_second, k.burst, k.created_at, k.revoked_at, k.expires_at, k.networks,
       c.default_from, c.suspended_at IS NOT NULL AS suspended,
       ARRAY(SELECT d.domain FROM sender_domains d WHERE d.company_id = k.company_id) AS sender_domains, now() AS read_at
FROM api_keys k JOIN companies c ON c.id = k.company_id WHERE k.key_id = ANY ($1)`

// FindCallers returns the existing keys by id, with their companies, including revoked keys and
// keys of suspended companies.
func (s *Store) FindCallers(ctx context.Context, keyIDs []string) (map[string]*Caller, error) {
	var rows []*Caller
	asked := time.Now()
	if err := s.db.SelectContext(ctx, &rows, findCallersSQL, pq.StringArray(keyIDs)); err != nil {
		return nil, fmt.Errorf("find api keys: %w", pg.Translate(err))
	}
	found := make(map[string]*Caller, len(rows))
	for _, c := range rows {
		c.normalize()
		c.asked = asked
		found[c.KeyID] = c
	}
	return found, nil
}

// FindCaller returns the key and its company, even if they are revoked or suspended. It returns
// pg.ErrNotFound if there is no such key.
func (s *Store) FindCaller(ctx context.Context, keyID string) (Caller, error) {
	found, err := s.FindCallers(ctx, []string{keyID})
	if err != nil {
		return Caller{}, err
	}
	c, ok := found[keyID]
	if !ok {
		return Caller{}, fmt.Errorf("find api key: %w", pg.ErrNotFound)
	}
	return *c, nil
}
