package idempotency

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jmoiron/sqlx"
	"github.com/lib/pq"
	"github.com/lib/pq/pqerror"

	"email-gateway/shared/store/internal/pg"
)

// InsertWait is how long a group waits for another transaction that is inserting one of its
// idempotency keys. It is longer than a commit.
const InsertWait = 100 * time.Millisecond

// ErrInProgress means that another request with the same key or filename is being written. This
// request timed out waiting for it, or the maximum number of requests wait for it already.
var ErrInProgress = errors.New("another request with the same key or filename is being written")

// ErrTaken means that the key of a claim exists already. FindUsed returns its answer.
var ErrTaken = errors.New("idempotency key taken")

// claimKeySQL inserts the row unless its primary key exists. The foreign key locks the company's row FOR KEY SHARE, which
// blocks neither suspending nor resuming the company.
const claimKeySQL = `
INSERT INTO idempotency_keys (company_id, route, key, body_sha256, status, answer, outbox_id, expires_at)
VALUES ($1, $2, $3, $4, $5, coalesce($8::bytea, ''), $6, now() + $7 * interval '1 ms')
ON CONFLICT (company_id, route, key) DO NOTHING`

// claimArguments are the parameters of claimKeySQL.
func (k Key) claimArguments(company, id uuid.UUID) []any {
	return []any{company, k.Route, k.Key, k.BodySHA256, k.Status, id, k.Keep.Milliseconds(), k.Answer}
}

// Claim inserts the key for the row id; WriteAnswer writes its answer later in the transaction. It does nothing if k is
// nil, and returns ErrTaken if the key exists already.
func Claim(ctx context.Context, tx *sqlx.Tx, company uuid.UUID, k *Key, id uuid.UUID) error {
	if k == nil {
		return nil
	}
	claimed, err := Inserted(tx.ExecContext(ctx, claimKeySQL, k.claimArguments(company, id)...))
	switch {
	case err != nil:
		return fmt.Errorf("claim idempotency key: %w", err)
	case !claimed:
		return ErrTaken
	}
	return nil
}

// Inserted reports whether an INSERT … ON CONFLICT DO NOTHING wrote its row.
func Inserted(result sql.Result, err error) (bool, error) {
	var refused *pq.Error
	if errors.As(err, &refused) && refused.Code == pqerror.LockNotAvailable {
		return false, errors.Join(ErrInProgress, err)
	}
	if err != nil {
		return false, pg.Translate(err)
	}
	n, err := result.RowsAffected()
	return n == 1, err
}

// answerKeySQL updates, by primary key, the row that this transaction has inserted.
const answerKeySQL = `UPDATE idempotency_keys SET answer = $4 WHERE company_id = $1 AND route = $2 AND key = $3`

// WriteAnswer writes the answer of a key that this transaction has claimed.
func WriteAnswer(ctx context.Context, tx *sqlx.Tx, company uuid.UUID, k Key, answer []byte) error {
	_, err := tx.ExecContext(ctx, answerKeySQL, company, k.Route, k.Key, answer)
	return pg.Translate(err)
}

// StoreAnswer stores the key with the answer to a request that creates nothing, because an earlier request created the
// row id. It returns the answer that is stored with the key: that of k, or of another request that used the key before.
//
// If it returns ErrInProgress, pg.ErrBusy or pg.ErrUnavailable, nothing was written. After pg.ErrUnknownOutcome the
// answer may be stored; the call may be repeated.
func (s *Store) StoreAnswer(ctx context.Context, company, id uuid.UUID, k Key) (StoredAnswer, error) {
	// If the other request's key expires between the insert and the look-up, the insert is repeated.
	for range 3 {
		inserted, err := s.db.ChangeBounded(ctx, k.Row(company), claimKeySQL, k.claimArguments(company, id)...)
		switch {
		case err != nil:
			return StoredAnswer{}, fmt.Errorf("store answer: %w", AsInProgress(err))
		case inserted == 1:
			return StoredAnswer{BodySHA256: k.BodySHA256, Status: k.Status, Answer: k.Answer}, nil
		}
		found, err := s.FindUsed(ctx, company, k)
		if !errors.Is(err, pg.ErrNotFound) {
			return found, err
		}
	}
	return StoredAnswer{}, ErrInProgress
}

// AsInProgress returns ErrInProgress for a lock error on a key: another transaction held it for too long, or too
// many requests wait for it already.
func AsInProgress(err error) error {
	if pg.IsRowWait(err) {
		return errors.Join(ErrInProgress, err)
	}
	return pg.AsBusy(err)
}
