package outbox

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/google/uuid"
	"github.com/jmoiron/sqlx"

	"email-gateway/shared/email"
	"email-gateway/shared/store/file"
	"email-gateway/shared/store/idempotency"
	"email-gateway/shared/store/internal/pg"
	"email-gateway/shared/store/quota"
)

// NewBatch are emails of one company that are accepted in one commit: all of them or none.
type NewBatch struct {
	ID          uuid.UUID // UUIDv7
	CompanyID   uuid.UUID
	Emails      []NewEmail       // ids ascending; none has an idempotency key
	Idempotency *idempotency.Key // of the batch; its stored response is what Answer returns; nil = none
	// Partial means that emails which would exceed a quota are left out. Otherwise one such email rejects the whole
	// batch.
	Partial bool
	// Answer makes the response from the results, which are in the order of Emails. It is called in the transaction,
	// because the response is committed with the key.
	Answer func([]BatchResult) ([]byte, error)
}

// BatchResult is the result of one email of a batch. Without Earlier and Over it was inserted.
type BatchResult struct {
	Earlier *EarlierEmail // of the same aggregate and event type
	Over    *quota.Error  // only in a partial batch
}

// EarlierEmail is an email that exists already. If it is no longer stored, only ID is set.
type EarlierEmail struct {
	ID        uuid.UUID    `db:"id"`
	RequestID string       `db:"request_id"`
	Status    email.Status `db:"status"`
	CreatedAt time.Time    `db:"created_at"`
}

// BatchOutcome is the result of a batch that was committed or, with pg.ErrUnknownOutcome, may have been committed.
type BatchOutcome struct {
	Results  []BatchResult
	Answer   []byte
	Inserted uuid.UUID // the id of one of the inserted emails; uuid.Nil = none was inserted
}

const (
	// batchLockWait is how long a batch waits for another transaction's lock. It is longer than a commit takes. A batch
	// that waits holds locks and a connection, so the caller repeats the batch instead of waiting longer. The wait is
	// less than Postgres's deadlock_timeout (1 s): in a deadlock with a program that takes its keys in another order,
	// the batch fails and not the program.
	batchLockWait = 200 * time.Millisecond
	// batchTries is how often a batch is tried if the key expires or a quota turns out to have less room than expected.
	batchTries = 5
)

// AcceptBatch commits the emails. After it returns a nil error, none of them can be lost. It waits at most
// batchLockWait for a lock of another transaction.
//
// If it returns one of these errors, nothing was written: *idempotency.UsedError, *quota.Error, *file.GoneError,
// lane.ErrNone and pg.ErrUnavailable; and, if a lock timed out, idempotency.ErrInProgress (key), ErrAggregateBusy
// (aggregates) or pg.ErrBusy (quotas, files): the caller may then repeat the batch. After pg.ErrUnknownOutcome call
// Exists with the outcome's Inserted.
func (s *Store) AcceptBatch(ctx context.Context, b NewBatch) (BatchOutcome, error) {
	b.Emails = slices.Clone(b.Emails)
	wanted := quota.Demand{}
	for i := range b.Emails {
		e := &b.Emails[i]
		var err error
		if e.payload, err = json.Marshal(e.Job); err != nil {
			return BatchOutcome{}, fmt.Errorf("encode job: %w", err)
		}
		for q, n := range e.Demand() {
			wanted[q] += n
		}
	}
	nearQuota, err := s.quotas.Near(ctx, b.CompanyID, wanted)
	if err != nil {
		return BatchOutcome{}, err
	}
	t := batchTry{NewBatch: b, nearQuota: nearQuota, over: map[int]*quota.Error{}}
	for range batchTries {
		_, err := pg.Repeat(func() ([]struct{}, error) {
			return nil, s.db.InTx(ctx, func(tx *sqlx.Tx) error { return t.run(ctx, tx) })
		})
		switch {
		case errors.Is(err, idempotency.ErrTaken):
			used, err := s.keys.FindUsed(ctx, b.CompanyID, *b.Idempotency)
			if err == nil {
				return BatchOutcome{}, &idempotency.UsedError{Answer: used}
			}
			if !errors.Is(err, pg.ErrNotFound) {
				return BatchOutcome{}, err
			}
		case errors.Is(err, errOverQuota):
		default:
			return t.outcome, pg.Wrap("accept batch", err)
		}
	}
	return BatchOutcome{}, fmt.Errorf("accept batch: %w", pg.ErrBusy)
}

// errOverQuota rolls back a try that took the keys of aggregates for emails that exceed a quota.
var errOverQuota = errors.New("over quota")

// batchTry is one try to accept a batch.
type batchTry struct {
	NewBatch
	nearQuota bool
	over      map[int]*quota.Error // emails that exceeded a quota in earlier tries
	outcome   BatchOutcome
}

// run does everything but the commit. The idempotency key comes first, so that concurrent requests with the same key
// wait. Aggregates come before quotas: a batch that waits for a program's transaction must not hold the quotas.
func (t *batchTry) run(ctx context.Context, tx *sqlx.Tx) error {
	t.outcome = BatchOutcome{Results: make([]BatchResult, len(t.Emails))}
	if _, err := tx.ExecContext(ctx, pg.BoundWaitSQL, pg.LockTimeout(batchLockWait)); err != nil {
		return pg.Translate(err)
	}
	if err := idempotency.Claim(ctx, tx, t.CompanyID, t.Idempotency, t.ID); err != nil {
		return err
	}
	followers, err := t.takeAggregates(ctx, tx)
	if err != nil {
		return AsAggregateBusy(err)
	}
	fresh, _ := t.fresh()
	if err := file.Hold(ctx, tx, t.CompanyID, Attached(fresh)...); err != nil {
		return pg.AsBusy(err)
	}
	if err := t.takeQuotas(ctx, tx); err != nil {
		return pg.AsBusy(err)
	}
	for i, leader := range followers {
		t.copyResult(i, leader)
	}
	if err := t.insert(ctx, tx); err != nil {
		return err
	}
	return t.answer(ctx, tx)
}

// copyResult gives an email the result of an earlier one of the batch with the same aggregate and event type.
func (t *batchTry) copyResult(i, leader int) {
	results, first := t.outcome.Results, &t.Emails[leader]
	results[i] = results[leader]
	if results[leader].inserted() {
		results[i].Earlier = &EarlierEmail{ID: first.ID, RequestID: first.RequestID, Status: email.Pending, CreatedAt: first.CreatedAt}
	}
}

func (r BatchResult) inserted() bool { return r.Earlier == nil && r.Over == nil }

// answer writes the response to the row of the key, which this transaction has inserted.
func (t *batchTry) answer(ctx context.Context, tx *sqlx.Tx) error {
	var err error
	if t.outcome.Answer, err = t.Answer(t.outcome.Results); err != nil {
		return fmt.Errorf("answer batch: %w", err)
	}
	if t.Idempotency == nil {
		return nil
	}
	return idempotency.WriteAnswer(ctx, tx, t.CompanyID, *t.Idempotency, t.outcome.Answer)
}
