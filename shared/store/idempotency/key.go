package idempotency

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"

	"email-gateway/shared/store/internal/pg"
)

// Key is a client's idempotency key with the response to its request. Both are committed together
// with the row that the request creates, or by StoreAnswer if it creates none.
type Key struct {
	Route      string
	Key        string
	BodySHA256 []byte // of the canonical JSON body
	Status     int
	Answer     []byte
	Keep       time.Duration
}

// Row identifies the row for which concurrent requests with the key wait.
func (k Key) Row(company uuid.UUID) pg.HeldRow {
	return pg.HeldRow{Company: company, Name: "key\x00" + k.Route + "\x00" + k.Key}
}

// StoredAnswer is the response to a key's first request.
type StoredAnswer struct {
	BodySHA256 []byte `db:"body_sha256"`
	Status     int    `db:"status"`
	Answer     []byte `db:"answer"`
}

// UsedError reports that the key existed already. Answer belongs to its first request.
type UsedError struct {
	Answer StoredAnswer
}

func (e *UsedError) Error() string { return "idempotency key already used" }

// findKeySQL reads one row by primary key and locks nothing.
const findKeySQL = `
SELECT body_sha256, status, answer FROM idempotency_keys
WHERE company_id = $1 AND route = $2 AND key = $3 AND expires_at > now()`

// FindAnswer returns the response to the key's first request, or pg.ErrNotFound.
func (s *Store) FindAnswer(ctx context.Context, company uuid.UUID, route, key string) (StoredAnswer, error) {
	var found StoredAnswer
	if err := s.db.GetContext(ctx, &found, findKeySQL, company, route, key); err != nil {
		return StoredAnswer{}, fmt.Errorf("find idempotency key: %w", pg.Translate(err))
	}
	return found, nil
}

// FindUsed is FindAnswer after an insert conflicted with the key. It deletes an expired key, so that
// the caller's next insert succeeds.
func (s *Store) FindUsed(ctx context.Context, company uuid.UUID, k Key) (StoredAnswer, error) {
	found, err := s.FindAnswer(ctx, company, k.Route, k.Key)
	if !errors.Is(err, pg.ErrNotFound) {
		return found, err
	}
	if err := s.dropExpiredKey(ctx, company, k); err != nil {
		return StoredAnswer{}, err
	}
	return s.FindAnswer(ctx, company, k.Route, k.Key)
}

// dropExpiredKeySQL locks the one row that it deletes, by primary key.
const dropExpiredKeySQL = `
DELETE FROM idempotency_keys WHERE company_id = $1 AND route = $2 AND key = $3 AND expires_at <= now()`

func (s *Store) dropExpiredKey(ctx context.Context, company uuid.UUID, k Key) error {
	if _, err := s.db.ChangeBounded(ctx, k.Row(company), dropExpiredKeySQL, company, k.Route, k.Key); err != nil {
		return fmt.Errorf("drop expired idempotency key: %w", err)
	}
	return nil
}

// cleanKeysSQL finds rows by idempotency_keys_expiry, oldest first, and locks those that it deletes;
// it skips rows that another cleaner has locked. It selects the found rows by an array of ctids, not
// by a join, for which the planner may read the whole table. The ctid of a locked row does not change.
// A row that was updated just before has a new ctid, which this statement does not find: the next
// call deletes it.
const cleanKeysSQL = `
DELETE FROM idempotency_keys WHERE ctid = ANY (ARRAY(
    SELECT ctid FROM idempotency_keys
    WHERE expires_at <= now() ORDER BY expires_at LIMIT $1 FOR UPDATE SKIP LOCKED))`

// CleanIdempotencyKeys deletes at most limit expired keys and returns their number.
func (s *Store) CleanIdempotencyKeys(ctx context.Context, limit int) (int, error) {
	result, err := s.db.Exec(ctx, cleanKeysSQL, limit)
	if err != nil {
		return 0, fmt.Errorf("clean idempotency keys: %w", err)
	}
	n, err := result.RowsAffected()
	return int(n), err
}
