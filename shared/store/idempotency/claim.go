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
// idempotency keys: longer than a commit takes.
const InsertWait = 100 * time.Millisecond

// ErrInProgress: another request with the same key or filename is being written, and
// it took longer than this one waited for it, or as many requests as may wait already.
var ErrInProgress = errors.New("another request with the same key or filename is being written")

// ErrTaken is the conflict of a claim; the look-up that follows returns the answer.
var ErrTaken = errors.New("idempotency key taken")

// claimKeySQL inserts by idempotency_keys' primary key and locks nothing that others need: the foreign key locks the
// company's row FOR KEY SHARE, which blocks neither suspending nor resuming it.
const claimKeySQL = `
INSERT INTO idempotency_keys (company_id, route, key, body_sha256, status, answer, outbox_id, expires_at)
VALUES ($1, $2, $3, $4, $5, '', $6, now() + $7 * interval '1 ms')
ON CONFLICT (company_id, route, key) DO NOTHING`

// Claim inserts the key, whose answer is written later in the transaction, for the row of the id; nil = there is no
// key. ErrTaken: it exists already.
func Claim(ctx context.Context, tx *sqlx.Tx, company uuid.UUID, k *Key, id uuid.UUID) error {
	if k == nil {
		return nil
	}
	claimed, err := Inserted(tx.ExecContext(ctx, claimKeySQL, company, k.Route, k.Key, k.BodySHA256, k.Status, id, k.Keep.Milliseconds()))
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

// Held returns ErrInProgress for a lock error on a key: another transaction has held it for too long, or
// too many requests wait for it already.
func Held(err error) error {
	if pg.IsRowWait(err) {
		return errors.Join(ErrInProgress, err)
	}
	return pg.Held(err)
}
