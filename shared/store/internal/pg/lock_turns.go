package pg

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/google/uuid"
)

const (
	// lockTries limits concurrent tries, and lockTriesOfEach those of one company.
	lockTries, lockTriesOfEach = 6, 3
	// tryWait is how long a try waits for a lock: longer than a commit takes.
	tryWait = 200 * time.Millisecond
	// turnWait is how long a request waits for its try, without a connection. Together with the try, it is answered
	// within 5 s.
	turnWait = LockWait
)

// ErrTriesOfCompany and ErrTries: no try became free within turnWait, and no request of the company waited for a lock
// in that time. The database may be slow. Nothing was written.
var (
	ErrTriesOfCompany = errors.New("too many concurrent requests of the company that lock rows")
	ErrTries          = errors.New("too many concurrent requests of all companies that lock rows")
)

// turn is a request that waits for a try. ready receives whether the request may try.
type turn struct {
	row   HeldRow
	ready chan bool
}

// turns holds the requests that wait for a try. Companies take turns, one request each.
type turns struct {
	of    map[uuid.UUID][]*turn // of each company, in order of arrival
	order []uuid.UUID           // of companies; the last served one is at the end
}

func (t *turns) add(next *turn) {
	company := next.row.Company
	if len(t.of[company]) == 0 {
		t.order = append(t.order, company)
	}
	t.of[company] = append(t.of[company], next)
}

// remove removes the request and reports whether it was still waiting.
func (t *turns) remove(next *turn) bool {
	company := next.row.Company
	i := slices.Index(t.of[company], next)
	if i >= 0 {
		t.set(company, slices.Delete(t.of[company], i, i+1))
	}
	return i >= 0
}

// take removes the first request for which may returns true, in the order of the companies, or returns nil.
func (t *turns) take(may func(HeldRow) bool) *turn {
	for at, company := range t.order {
		i := slices.IndexFunc(t.of[company], func(next *turn) bool { return may(next.row) })
		if i < 0 {
			continue
		}
		next := t.of[company][i]
		t.order = append(slices.Delete(t.order, at, at+1), company)
		t.set(company, slices.Delete(t.of[company], i, i+1))
		return next
	}
	return nil
}

// takeAll removes and returns the requests that wait to try the row.
func (t *turns) takeAll(row HeldRow) (taken []*turn) {
	left := slices.DeleteFunc(slices.Clone(t.of[row.Company]), func(next *turn) bool {
		if next.row == row {
			taken = append(taken, next)
		}
		return next.row == row
	})
	t.set(row.Company, left)
	return taken
}

// set stores the remaining requests of a company, and removes a company without requests.
func (t *turns) set(company uuid.UUID, left []*turn) {
	if len(left) > 0 {
		t.of[company] = left
		return
	}
	delete(t.of, company)
	t.order = slices.DeleteFunc(t.order, func(c uuid.UUID) bool { return c == company })
}

// try waits until the request may try the row. It returns false if another request waits for the row's lock already, so
// that a try would be useless. After turnWait the error is ErrBusy if requests of the company are blocked by locks,
// else ErrTriesOfCompany or ErrTries.
func (w *waits) try(ctx context.Context, row HeldRow) (bool, error) {
	start := time.Now()
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
	w.turns.add(mine)
	w.mu.Unlock()

	late := time.NewTimer(turnWait)
	defer late.Stop()
	var err error
	select {
	case useful := <-mine.ready:
		return useful, nil
	case <-late.C:
		err = ErrTries
	case <-ctx.Done():
		err = context.Cause(ctx)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.turns.remove(mine) { // the request got its result at the same moment
		return <-mine.ready, nil
	}
	defer w.forget(row.Company)
	if errors.Is(err, ErrTries) {
		err = w.noTry(row, start)
	}
	return false, err
}

// noTry returns the error of a request that has waited since start without a try. w.mu is held.
func (w *waits) noTry(row HeldRow, start time.Time) error {
	if w.waiters[row.Company] > 0 || !w.met[row.Company].Before(start) {
		return ErrBusy
	}
	if _, same := w.trying[row]; same || w.tries[row.Company] == lockTriesOfEach {
		return ErrTriesOfCompany
	}
	return ErrTries
}

// meet records that a request of the company timed out on a lock.
func (w *waits) meet(company uuid.UUID) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.met[company] = time.Now()
}

// forget removes the lock time of a company without requests. w.mu is held.
func (w *waits) forget(company uuid.UUID) {
	if w.tries[company] == 0 && w.waiters[company] == 0 && len(w.turns.of[company]) == 0 {
		delete(w.met, company)
	}
}

// mayTry takes a try if the company may have one more and no other request of this process is trying the same row: the
// transaction of that request ends soon. w.mu is held.
func (w *waits) mayTry(row HeldRow) bool {
	if _, same := w.trying[row]; same || len(w.trying) == lockTries || w.tries[row.Company] == lockTriesOfEach {
		return false
	}
	w.trying[row] = struct{}{}
	w.tries[row.Company]++
	return true
}

// endTry releases the try, and starts the waiting requests that may now try.
func (w *waits) endTry(row HeldRow) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.trying, row)
	count(w.tries, row.Company, -1)
	w.forget(row.Company)
	for next := w.turns.take(w.mayTry); next != nil; next = w.turns.take(w.mayTry) {
		next.ready <- true
	}
}
