package store

import (
	"context"
	"errors"
	"regexp"
	"slices"
	"sync"
	"time"

	"github.com/google/uuid"
	"github.com/lib/pq"
)

// Bounds of the connections that requests hold while other transactions hold the rows that
// they need. Of a pool of 16, four are left to all others in the worst case, and usually ten:
// a try that meets no lock takes two milliseconds.
const (
	lockTries, lockTriesOfEach = 6, 3
	lockWaits, lockWaitsOfEach = 6, 2
	// tryWait is how long a try waits for a lock: longer than a commit takes.
	tryWait = 200 * time.Millisecond
	// turnWait is how long a request waits, without a connection, for its try.
	turnWait = 8 * time.Second
)

// ErrBusy: another transaction holds a row that the request needs, and as many requests wait
// for such rows as may. Nothing was written.
var ErrBusy = errors.New("another transaction holds a row that is needed, and too many requests wait already")

// heldRow names what a request needs alone: requests with the same name wait for the same
// lock.
type heldRow struct {
	company uuid.UUID
	name    string
}

// waits bounds the requests that wait for the locks of other transactions: a program that
// sits on its transaction must not hold the connections of everybody. Each process counts for
// itself.
type waits struct {
	mu      sync.Mutex
	trying  map[heldRow]struct{}
	tries   map[uuid.UUID]int // of each company
	queue   []*turn           // for a try, in the order in which they came
	all     int               // requests that wait
	waiters map[uuid.UUID]int // of each company
	waiting map[heldRow]*heldBy
}

// turn is a request that wants to try. ready says whether a try is of use.
type turn struct {
	row   heldRow
	ready chan bool
}

// heldBy counts the requests that wait for a row. cause is the error of the first one's try.
type heldBy struct {
	requests int
	cause    error
}

func newWaits() *waits {
	return &waits{trying: map[heldRow]struct{}{}, tries: map[uuid.UUID]int{}, waiters: map[uuid.UUID]int{}, waiting: map[heldRow]*heldBy{}}
}

// bounded runs do, which may need a row that another transaction holds and waits for it as
// long as it is told. Most rows are free, so do is tried with a short wait first; whoever
// meets a lock then waits, up to aggregateWait: two of a company and six of all. More get
// ErrBusy at once, joined with the error of a try. do must write nothing when it fails; it is
// repeated when it lost a race.
func bounded[R any](ctx context.Context, w *waits, row heldRow, do func(wait time.Duration) ([]R, error)) ([]R, error) {
	end := time.Now().Add(aggregateWait)
	tried, err := w.try(ctx, row)
	if err != nil {
		return nil, err
	}
	var cause error
	if tried {
		done, err := repeat(func() ([]R, error) { return do(tryWait) })
		if !isLockTimeout(err) {
			w.endTry(row)
			return done, err
		}
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
	return repeat(func() ([]R, error) { return do(wait) })
}

// try waits for the turn of a try. false: somebody waits for the row already, so that a try
// is of no use.
func (w *waits) try(ctx context.Context, row heldRow) (bool, error) {
	w.mu.Lock()
	if w.waiting[row] != nil {
		w.mu.Unlock()
		return false, nil
	}
	if w.mayTry(row) {
		w.mu.Unlock()
		return true, nil
	}
	mine := &turn{row: row, ready: make(chan bool, 1)}
	w.queue = append(w.queue, mine)
	w.mu.Unlock()

	late := time.NewTimer(turnWait)
	defer late.Stop()
	var err error
	select {
	case useful := <-mine.ready:
		return useful, nil
	case <-late.C:
		err = ErrBusy
	case <-ctx.Done():
		err = context.Cause(ctx)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	i := slices.Index(w.queue, mine)
	if i < 0 { // it came at the same moment
		return <-mine.ready, nil
	}
	w.queue = slices.Delete(w.queue, i, i+1)
	return false, err
}

// mayTry takes a turn if there is one for the company, and no other request of this process
// is trying the same row: that one will let go of it. w.mu is held.
func (w *waits) mayTry(row heldRow) bool {
	if _, twin := w.trying[row]; twin || len(w.trying) == lockTries || w.tries[row.company] == lockTriesOfEach {
		return false
	}
	w.trying[row] = struct{}{}
	w.tries[row.company]++
	return true
}

func (w *waits) endTry(row heldRow) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.trying, row)
	count(w.tries, row.company, -1)
	w.queue = slices.DeleteFunc(w.queue, func(next *turn) bool {
		if !w.mayTry(next.row) {
			return false
		}
		next.ready <- true
		return true
	})
}

// enter makes the request one that waits for the row, or refuses it.
func (w *waits) enter(row heldRow, cause error) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	holder := w.waiting[row]
	if holder == nil {
		holder = &heldBy{cause: cause}
	}
	if w.all == lockWaits || w.waiters[row.company] == lockWaitsOfEach {
		return errors.Join(ErrBusy, holder.cause)
	}
	holder.requests++
	w.waiting[row] = holder
	w.all++
	count(w.waiters, row.company, 1)
	w.queue = slices.DeleteFunc(w.queue, func(next *turn) bool {
		if next.row != row {
			return false
		}
		next.ready <- false
		return true
	})
	return nil
}

func (w *waits) leave(row heldRow) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.all--
	count(w.waiters, row.company, -1)
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

// isRowWait: the lock was a row's or a key's, and not that of a table, for which everybody
// waits.
func isRowWait(err error) bool {
	var refused *pq.Error
	return isLockTimeout(err) && errors.As(err, &refused) && place.MatchString(refused.Where)
}
