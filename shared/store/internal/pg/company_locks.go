package pg

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/google/uuid"
	"github.com/jmoiron/sqlx"
)

const (
	// companyTries limits the connections of tries, of which a company has one.
	companyTries = 4
	// companyTryWait is how long a try waits for a lock: longer than most commits take.
	companyTryWait = 50 * time.Millisecond
	// heldTryWait is the same for a company whose try timed out within LockedKeyTime. A hundred such companies then use less
	// than one of the companyTries.
	heldTryWait = 5 * time.Millisecond
)

// companyLocks limits the transactions that lock the one row of their company. Transactions of a company wait for each
// other without a connection. A program's open transaction may hold the row for seconds: it then delays the company, and
// other companies by one short try.
type companyLocks struct {
	tries chan struct{}
	held  *LockedKeys[uuid.UUID] // companies; its slots are for transactions that wait longer than a try

	mu    sync.Mutex
	turns map[uuid.UUID]*companyTurn
}

// companyTurn is the turn of a company's transactions.
type companyTurn struct {
	taken    chan struct{}
	requests int // that have the turn or wait for it
}

func newCompanyLocks() *companyLocks {
	return &companyLocks{tries: make(chan struct{}, companyTries), held: NewLockedKeys[uuid.UUID](), turns: map[uuid.UUID]*companyTurn{}}
}

// InCompanyTx runs do in a transaction that locks the one row of its company. do gets the maximum wait for a lock.
// After a lock timeout do runs again with a longer wait, and after a conflict with another transaction it is repeated.
// If other transactions hold the row for longest, the error is ErrBusy.
func InCompanyTx[R any](ctx context.Context, db *DB, company uuid.UUID, longest time.Duration, do func(tx *sqlx.Tx, wait time.Duration) ([]R, error)) (results []R, err error) {
	err = db.companies.run(ctx, company, longest, func(wait time.Duration) (err error) {
		results, err = Repeat(func() (done []R, err error) {
			err = db.InTx(ctx, func(tx *sqlx.Tx) error {
				if _, err := tx.ExecContext(ctx, BoundWaitSQL, LockTimeout(wait)); err != nil {
					return Translate(err)
				}
				done, err = do(tx, wait)
				return err
			})
			return done, err
		})
		return err
	})
	return results, err
}

// run runs do with a short wait, and after a lock timeout with the rest of longest. The time until a try is free does
// not count, nor the wait for the company's turn unless its row is held: no lock causes them.
func (l *companyLocks) run(ctx context.Context, company uuid.UUID, longest time.Duration, do func(wait time.Duration) error) error {
	end := time.Now().Add(longest)
	turn, err := l.enter(ctx, company, longest)
	if err != nil {
		return err
	}
	defer l.leave(company, turn)

	if !l.held.Contains(company) {
		end = time.Now().Add(longest)
	}
	ready := time.Now()
	select {
	case l.tries <- struct{}{}:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	end = end.Add(time.Since(ready))
	if err = l.try(company, do); IsLockTimeout(err) {
		l.held.Add(company)
		err = l.wait(end, err, do)
	}
	if err == nil {
		l.held.Remove(company)
	}
	return err
}

// try runs do with a short wait, and frees the try.
func (l *companyLocks) try(company uuid.UUID, do func(wait time.Duration) error) error {
	defer func() { <-l.tries }()
	wait := companyTryWait
	if l.held.Contains(company) {
		wait = heldTryWait
	}
	return do(wait)
}

// wait runs do again with a lock timeout at end. timeout is the error of the try.
func (l *companyLocks) wait(end time.Time, timeout error, do func(wait time.Duration) error) error {
	if l.held.TryEnter(time.Until(end)) {
		defer l.held.Leave()
		timeout = do(max(time.Until(end), heldTryWait))
	}
	if IsLockTimeout(timeout) {
		// The lock timeout is not wrapped: a Group would split after one, and each half would wait again.
		return fmt.Errorf("%w: %s", ErrBusy, timeout.Error())
	}
	return timeout
}

// enter waits for the company's turn. After longest it returns ErrBusy if the company's row is held.
func (l *companyLocks) enter(ctx context.Context, company uuid.UUID, longest time.Duration) (*companyTurn, error) {
	l.mu.Lock()
	turn := l.turns[company]
	if turn == nil {
		turn = &companyTurn{taken: make(chan struct{}, 1)}
		l.turns[company] = turn
	}
	turn.requests++
	l.mu.Unlock()

	late := time.NewTicker(longest)
	defer late.Stop()
	for {
		select {
		case turn.taken <- struct{}{}:
			return turn, nil
		case <-late.C:
			if l.held.Contains(company) {
				l.forget(company, turn)
				return nil, ErrBusy
			}
		case <-ctx.Done():
			l.forget(company, turn)
			return nil, context.Cause(ctx)
		}
	}
}

func (l *companyLocks) leave(company uuid.UUID, turn *companyTurn) {
	<-turn.taken
	l.forget(company, turn)
}

// forget removes a request of a company, and the turn of a company without requests.
func (l *companyLocks) forget(company uuid.UUID, turn *companyTurn) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if turn.requests--; turn.requests == 0 {
		delete(l.turns, company)
	}
}
