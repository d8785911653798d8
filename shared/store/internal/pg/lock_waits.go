package pg

import (
	"context"
	"errors"
	"regexp"
	"sync"
	"time"

	"github.com/google/uuid"
	"github.com/lib/pq"
)

// Limits of the connections that requests hold while other transactions hold the rows that
// they need: see lockTries too. Of a pool of 16, four are left to all others in the worst case,
// and usually ten: a try without a lock takes two milliseconds.
const lockWaits, lockWaitsOfEach = 6, 2

// ErrBusy: another transaction holds a row that the request needs, and lockWaitsOfEach requests
// of the company or lockWaits of all wait for such rows already. Or the request got no try in
// turnWait because requests of its company are blocked by such rows. Nothing was written.
var ErrBusy = errors.New("other transactions hold rows that the company's requests need, and too many requests wait already")

// LockWait is how long somebody waits at most for a row that another transaction holds. It is less than the 5 s after which
// Postgres ends an idle transaction.
const LockWait = 4 * time.Second

// HeldRow names what a request needs alone: requests with the same name wait for the same
// lock.
type HeldRow struct {
	Company uuid.UUID
	Name    string
}

// waits bounds the requests that wait for the locks of other transactions: a program that
// keeps its transaction open must not take up the connections of all requests. Each process counts
// its own requests.
type waits struct {
	mu      sync.Mutex
	trying  map[HeldRow]struct{}
	tries   map[uuid.UUID]int // of each company
	turns   turns             // of requests that wait for a try
	all     int               // requests that wait for a lock
	waiters map[uuid.UUID]int // of each company
	waiting map[HeldRow]*heldBy
	met     map[uuid.UUID]time.Time // when a request of each company last waited for a lock in vain
}

// heldBy counts the requests that wait for a row. cause is the error of the first one's try.
type heldBy struct {
	requests int
	cause    error
}

func newWaits() *waits {
	return &waits{
		trying: map[HeldRow]struct{}{}, tries: map[uuid.UUID]int{}, turns: turns{of: map[uuid.UUID][]*turn{}},
		waiters: map[uuid.UUID]int{}, waiting: map[HeldRow]*heldBy{}, met: map[uuid.UUID]time.Time{},
	}
}

// Bounded runs do, which may need a row that another transaction holds and waits for it as
// long as its argument says. Most rows are free, so do is tried with a short wait first. A
// request that finds a lock then waits for it until LockWait is over; at most
// lockWaitsOfEach requests of a company and lockWaits of all companies do. Further ones get
// ErrBusy at once, joined with the error of a try. A request that gets no try in turnWait gets
// ErrBusy if requests of its company are blocked by locks, else ErrTriesOfCompany or ErrTries. do must write
// nothing when it fails; it is repeated after a serialization failure or deadlock.
func Bounded[R any](ctx context.Context, db *DB, row HeldRow, do func(wait time.Duration) ([]R, error)) ([]R, error) {
	w, end := db.waits, time.Now().Add(LockWait)
	tried, err := w.try(ctx, row)
	if err != nil {
		return nil, err
	}
	var cause error
	if tried {
		done, err := Repeat(func() ([]R, error) { return do(tryWait) })
		if !IsLockTimeout(err) {
			w.endTry(row)
			return done, err
		}
		w.meet(row.Company)
		cause = err
	}
	err = w.enter(row, cause)
	if tried {
		w.endTry(row)
	}
	if err != nil {
		return nil, err
	}
	defer w.leave(row)
	wait := max(time.Until(end), tryWait)
	return Repeat(func() ([]R, error) { return do(wait) })
}

// enter makes the request one that waits for the row, or refuses it.
func (w *waits) enter(row HeldRow, cause error) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	holder := w.waiting[row]
	if holder == nil {
		holder = &heldBy{cause: cause}
	}
	if w.all == lockWaits || w.waiters[row.Company] == lockWaitsOfEach {
		return errors.Join(ErrBusy, holder.cause)
	}
	holder.requests++
	w.waiting[row] = holder
	w.all++
	count(w.waiters, row.Company, 1)
	for _, next := range w.turns.takeAll(row) {
		next.ready <- false
	}
	return nil
}

func (w *waits) leave(row HeldRow) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.all--
	count(w.waiters, row.Company, -1)
	w.forget(row.Company)
	if holder := w.waiting[row]; holder.requests == 1 {
		delete(w.waiting, row)
	} else {
		holder.requests--
	}
}

// count keeps only the companies that have any.
func count(of map[uuid.UUID]int, company uuid.UUID, change int) {
	if of[company] += change; of[company] == 0 {
		delete(of, company)
	}
}

// place is how Postgres names the row that a statement waited for, in any language.
var place = regexp.MustCompile(`\([0-9]+,[0-9]+\)`)

// IsRowWait reports whether the lock was a row's or a key's, and not a table's, which blocks
// every statement.
func IsRowWait(err error) bool {
	var refused *pq.Error
	return IsLockTimeout(err) && errors.As(err, &refused) && place.MatchString(refused.Where)
}
