// Package companylimit limits how much work an api does at a time, in total and per company.
package companylimit

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/google/uuid"
	"golang.org/x/sync/semaphore"
)

// Limiter limits concurrent work, in total and per company, so that companies do not block others.
type Limiter struct {
	ofEach   int64
	keepLast bool // the last free slot is only given to a company that holds none
	// onFull is called after each waitLimit for which a caller waits while all slots are used; nil
	// disables it.
	waitLimit time.Duration
	onFull    func()

	mu      sync.Mutex
	own     map[uuid.UUID]*share // companies that hold or wait for a slot
	free    int64
	waiting []*waiter // in the order of their arrival; none of them can have a slot now
}

type share struct {
	slots *semaphore.Weighted
	users int
	held  int64 // slots that the company holds
}

// waiter is a caller that waits for a shared slot.
type waiter struct {
	own   *share
	taken chan struct{} // closed when the waiter has a slot
}

// New returns a Limiter with total slots; one company has at most ofEach of them.
func New(total, ofEach int64) *Limiter {
	return &Limiter{free: total, ofEach: ofEach, own: map[uuid.UUID]*share{}}
}

// NewKeepingLast returns a Limiter that gives its last free slot only to a company that holds none. It is for slots that slow
// clients hold for minutes and that cannot be taken from them: two companies then leave one to a third.
func NewKeepingLast(total, ofEach int64) *Limiter {
	l := New(total, ofEach)
	l.keepLast = true
	return l
}

// OnFull sets a function that is called after each waitLimit for which a caller waits while all
// slots are used. It must be called before the first Enter, and not for a Limiter that keeps its last slot.
func (l *Limiter) OnFull(waitLimit time.Duration, onFull func()) {
	l.waitLimit, l.onFull = waitLimit, onFull
}

// ErrCompanyLimit: the company uses all slots that it may have.
var ErrCompanyLimit = errors.New("the company uses all its slots")

// Enter waits for a slot until ctx ends. release releases it.
func (l *Limiter) Enter(ctx context.Context, company uuid.UUID) (release func(), err error) {
	return l.enter(ctx, company, true)
}

// EnterOrRefuse is Enter, but returns ErrCompanyLimit at once where Enter waits for a slot of the
// company's own. At most ofEach callers of a company then wait.
func (l *Limiter) EnterOrRefuse(ctx context.Context, company uuid.UUID) (release func(), err error) {
	return l.enter(ctx, company, false)
}

func (l *Limiter) enter(ctx context.Context, company uuid.UUID, waitForOwn bool) (release func(), err error) {
	own := l.join(company)
	if !own.slots.TryAcquire(1) { // Acquire fails if ctx has ended, even if a slot is free
		if !waitForOwn {
			l.part(company, own)
			return nil, ErrCompanyLimit
		}
		if err := own.slots.Acquire(ctx, 1); err != nil {
			l.part(company, own)
			return nil, errors.Join(ErrCompanyLimit, err)
		}
	}
	if err := l.acquire(ctx, own); err != nil {
		own.slots.Release(1)
		l.part(company, own)
		return nil, err
	}
	return func() {
		l.release(own)
		own.slots.Release(1)
		l.part(company, own)
	}, nil
}

// acquire waits for one of the shared slots.
func (l *Limiter) acquire(ctx context.Context, own *share) error {
	w := l.takeOrWait(own)
	if w == nil {
		return nil
	}
	if l.onFull != nil {
		done := make(chan struct{})
		defer close(done)
		go l.repeatOnFull(done)
	}
	select {
	case <-w.taken:
		return nil
	case <-ctx.Done():
		if l.leave(w) {
			return ctx.Err()
		}
		return nil // it got a slot at the same time
	}
}

// takeOrWait takes a slot and returns nil, or returns a new waiter for one.
func (l *Limiter) takeOrWait(own *share) *waiter {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.take(own) {
		return nil
	}
	w := &waiter{own: own, taken: make(chan struct{})}
	l.waiting = append(l.waiting, w)
	return w
}

// take takes a slot unless all are used, or the last one is kept for other companies. l.mu must be held.
func (l *Limiter) take(own *share) bool {
	if l.free == 0 || l.keepLast && l.free == 1 && own.held > 0 {
		return false
	}
	l.free--
	own.held++
	return true
}

// leave removes a waiter, and returns false if it has a slot.
func (l *Limiter) leave(w *waiter) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	n := slices.Index(l.waiting, w)
	if n < 0 {
		return false
	}
	l.waiting = slices.Delete(l.waiting, n, n+1)
	return true
}

// release releases a slot, and gives free slots to the waiters that can have them. With keepLast one release can serve two: the
// first takes one of two free slots, and the last slot goes to a company that now holds none.
func (l *Limiter) release(own *share) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.free++
	own.held--
	l.waiting = slices.DeleteFunc(l.waiting, func(w *waiter) bool {
		if !l.take(w.own) {
			return false
		}
		close(w.taken)
		return true
	})
}

// repeatOnFull calls onFull until done is closed.
func (l *Limiter) repeatOnFull(done <-chan struct{}) {
	tick := time.NewTicker(l.waitLimit)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			l.onFull()
		case <-done:
			return
		}
	}
}

func (l *Limiter) join(company uuid.UUID) *share {
	l.mu.Lock()
	defer l.mu.Unlock()
	own, ok := l.own[company]
	if !ok {
		own = &share{slots: semaphore.NewWeighted(l.ofEach)}
		l.own[company] = own
	}
	own.users++
	return own
}

func (l *Limiter) part(company uuid.UUID, own *share) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if own.users--; own.users == 0 {
		delete(l.own, company)
	}
}
