package pg

import (
	"errors"
	"regexp"
	"sync"
	"time"

	"github.com/google/uuid"
	"github.com/lib/pq"
)

// Limits of the connections that requests hold while they wait for rows locked by other transactions; see also
// lockTries. In a pool of 16, four connections stay free in the worst case, and usually ten: a try without a lock takes
// two milliseconds.
const lockWaits, lockWaitsOfEach = 6, 2

// ErrBusy: another transaction holds a row that the request needs, and lockWaitsOfEach requests of the company, or
// lockWaits of all companies, wait for such rows already; or the request got no try within turnWait because requests of
// its company are blocked by such rows. Nothing was written.
var ErrBusy = errors.New("other transactions have locked rows that the request needs, and too many requests already wait for such rows")

// LockWait is the maximum wait for a row that another transaction holds. It is less than the 5 s after which Postgres
// ends an idle transaction.
const LockWait = 4 * time.Second

// HeldRow identifies the lock that a request needs: requests with the same HeldRow wait for the same lock.
type HeldRow struct {
	Company uuid.UUID
	Name    string
}

// waits limits the requests that wait for the locks of other transactions: a program that keeps its transaction open
// must not occupy the connections of all requests. Each process counts its own requests.
type waits struct {
	mu      sync.Mutex
	trying  map[HeldRow]struct{}
	tries   map[uuid.UUID]int // of each company
	turns   turns             // of requests that wait for a try
	all     int               // requests that wait for a lock
	waiters map[uuid.UUID]int // of each company
	waiting map[HeldRow]*heldBy
	met     map[uuid.UUID]time.Time // when a request of each company last timed out on a lock
}

// heldBy counts the requests that wait for a row. cause is the error of the first request's try.
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

// enter counts the request as one that waits for the row, or returns ErrBusy.
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

// count adds change to a company's number, and removes a company whose number is 0.
func count(of map[uuid.UUID]int, company uuid.UUID, change int) {
	if of[company] += change; of[company] == 0 {
		delete(of, company)
	}
}

// place matches the position of the row that a statement waited for, which Postgres writes alike in every language.
var place = regexp.MustCompile(`\([0-9]+,[0-9]+\)`)

// IsRowWait reports whether a lock timeout was due to a row or a key. A locked table, by contrast, blocks every
// statement.
func IsRowWait(err error) bool {
	var refused *pq.Error
	return IsLockTimeout(err) && errors.As(err, &refused) && place.MatchString(refused.Where)
}
