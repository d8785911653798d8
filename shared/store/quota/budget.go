package quota

import (
	"context"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jmoiron/sqlx"

	"email-gateway/shared/store/internal/pg"
)

// Demand is what a request would add to the usage of each quota.
type Demand map[Quota]int64

// LockWait is how long a request waits for the lock of its company's quotas: long enough for some
// commits of other requests, but not for a process that hangs during a commit.
const LockWait = time.Second

// Both statements find the company's row of quota_totals by primary key; lockTotalSQL locks it.
const (
	addTotalSQL  = `INSERT INTO quota_totals (company_id) SELECT $1 WHERE NOT EXISTS (SELECT FROM quota_totals WHERE company_id = $1) ON CONFLICT DO NOTHING`
	lockTotalSQL = `SELECT scheduled_at FROM quota_totals WHERE company_id = $1 FOR UPDATE`
)

// Lock locks the quotas of a company until the end of the transaction. Requests that are close to a quota take this lock,
// so that each sees what the previous ones have written. A transaction that also locks a mailing's row takes it first.
func Lock(ctx context.Context, tx *sqlx.Tx, company uuid.UUID) error {
	if _, err := tx.ExecContext(ctx, addTotalSQL, company); err != nil {
		return fmt.Errorf("lock quotas: %w", pg.Translate(err))
	}
	var counted *time.Time
	if err := tx.GetContext(ctx, &counted, lockTotalSQL, company); err != nil {
		return fmt.Errorf("lock quotas: %w", pg.Translate(err))
	}
	return nil
}

// recountScheduledSQL updates the row that Lock has locked, unless the last count was made less than 10 µs per email
// ago. It reads at most 100,000 emails along email_outbox_lane_claim, which takes about 50 ms, and none if more may be
// scheduled: Count counts those.
const recountScheduledSQL = `SELECT email_gateway_recount_scheduled($1, '0')`

// Budget is what a company may still use. The requests of one transaction share it.
type Budget struct {
	company uuid.UUID
	use     map[Quota]Use
}

// OpenBudget reads a company's usage. The result is exact only if the caller has locked the
// company's quotas. If a request seems to exceed the quota of scheduled emails, OpenBudget counts
// them if they are few, because the number in quota_totals decreases only by a count.
func OpenBudget(ctx context.Context, tx *sqlx.Tx, company uuid.UUID, wanted Demand, ofMailings bool) (*Budget, error) {
	use, err := Read(ctx, tx, company, ofMailings)
	if err != nil {
		return nil, err
	}
	b := &Budget{company: company, use: use}
	if wanted[ScheduledEmails] == 0 || b.Check(ScheduledEmails, wanted[ScheduledEmails]) == nil {
		return b, nil
	}
	if _, err := tx.ExecContext(ctx, recountScheduledSQL, company); err != nil {
		return nil, fmt.Errorf("count scheduled emails: %w", pg.Translate(err))
	}
	b.use, err = Read(ctx, tx, company, ofMailings)
	return b, err
}

// Check returns an error if more would exceed the quota.
func (b *Budget) Check(q Quota, more int64) *Error {
	u := b.use[q]
	if u.Limit == 0 || more <= 0 || u.Use+more <= u.Limit {
		return nil
	}
	return &Error{Quota: q, Limit: u.Limit, Use: u.Use, Reset: u.Reset}
}

// Take adds wanted to the usage, or returns *Error and adds nothing if a quota would be exceeded.
func (b *Budget) Take(wanted Demand) error {
	if over := b.Exceeded(wanted); over != nil {
		return over
	}
	b.Add(wanted, 1)
	return nil
}

// Exceeded returns the error of the first quota that wanted would exceed; nil = none.
func (b *Budget) Exceeded(wanted Demand) *Error {
	for _, q := range All() {
		if over := b.Check(q, wanted[q]); over != nil {
			return over
		}
	}
	return nil
}

// Release subtracts wanted from the usage.
func (b *Budget) Release(wanted Demand) { b.Add(wanted, -1) }

// Add adds sign times wanted to the usage; sign -1 subtracts it.
func (b *Budget) Add(wanted Demand, sign int64) {
	for q, n := range wanted {
		u := b.use[q]
		u.Use += sign * n
		b.use[q] = u
	}
}

// TakeFrom locks a company's quotas and adds wanted to its usage, for a request that writes it
// in the same transaction.
func TakeFrom(ctx context.Context, tx *sqlx.Tx, company uuid.UUID, wanted Demand, ofMailings bool) error {
	if err := Lock(ctx, tx, company); err != nil {
		return err
	}
	b, err := OpenBudget(ctx, tx, company, wanted, ofMailings)
	if err != nil {
		return err
	}
	return b.Take(wanted)
}

// InTx runs do in a transaction that locks the company's quotas; see pg.InCompanyTx. It returns pg.ErrBusy if other
// transactions hold the lock for LockWait.
func InTx[R any](ctx context.Context, db *pg.DB, company uuid.UUID, do func(tx *sqlx.Tx, wait time.Duration) ([]R, error)) ([]R, error) {
	return pg.InCompanyTx(ctx, db, company, LockWait, func(tx *sqlx.Tx, wait time.Duration) ([]R, error) {
		if err := Lock(ctx, tx, company); err != nil {
			return nil, err
		}
		return do(tx, wait)
	})
}
