// Package companylimit limits how much work an api does at a time, in total and per company.
package companylimit

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/google/uuid"
	"golang.org/x/sync/semaphore"
)

// Limiter limits concurrent work, in total and per company, so that one company does not block the
// others.
type Limiter struct {
	all    *semaphore.Weighted
	ofEach int64
	// makeRoom is called after each waitLimit for which a caller waits for a shared slot; nil
	// disables it.
	waitLimit time.Duration
	makeRoom  func()

	mu  sync.Mutex
	own map[uuid.UUID]*share // companies that hold or wait for a slot
}

type share struct {
	slots *semaphore.Weighted
	users int
}

// New creates a Limiter with total slots; one company has at most ofEach of them.
func New(total, ofEach int64) *Limiter {
	return &Limiter{all: semaphore.NewWeighted(total), ofEach: ofEach, own: map[uuid.UUID]*share{}}
}

// MakeRoom sets a function that is called after each waitLimit for which a caller waits for a slot
// used by other companies. It must be called before the first Enter.
func (l *Limiter) MakeRoom(waitLimit time.Duration, makeRoom func()) {
	l.waitLimit, l.makeRoom = waitLimit, makeRoom
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
	if err := l.acquire(ctx); err != nil {
		own.slots.Release(1)
		l.part(company, own)
		return nil, err
	}
	return func() {
		l.all.Release(1)
		own.slots.Release(1)
		l.part(company, own)
	}, nil
}

// acquire waits for one of the shared slots.
func (l *Limiter) acquire(ctx context.Context) error {
	if l.all.TryAcquire(1) {
		return nil
	}
	if l.makeRoom != nil {
		done := make(chan struct{})
		defer close(done)
		go l.repeatMakeRoom(done)
	}
	return l.all.Acquire(ctx, 1)
}

// repeatMakeRoom calls makeRoom until done is closed.
func (l *Limiter) repeatMakeRoom(done <-chan struct{}) {
	tick := time.NewTicker(l.waitLimit)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			l.makeRoom()
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
