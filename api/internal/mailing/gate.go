package mailing

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/google/uuid"
	"golang.org/x/sync/semaphore"
)

// Gate lets so many mailings through at a time, and of one company fewer, so that a
// company with slow connections does not shut the others out.
type Gate struct {
	all    *semaphore.Weighted
	ofEach int64
	// makeRoom is called after each waitLimit for which a caller waits for one of the shared
	// places; nil disables it.
	waitLimit time.Duration
	makeRoom  func()

	mu  sync.Mutex
	own map[uuid.UUID]*share // of companies that are inside or waiting
}

type share struct {
	slots *semaphore.Weighted
	users int
}

// NewGate makes a gate for total mailings, and at most ofEach of one company.
func NewGate(total, ofEach int64) *Gate {
	return &Gate{all: semaphore.NewWeighted(total), ofEach: ofEach, own: map[uuid.UUID]*share{}}
}

// MakeRoom sets what is called after each waitLimit for which a caller waits for a place that other
// companies have. It must be set before the first Enter.
func (g *Gate) MakeRoom(waitLimit time.Duration, makeRoom func()) {
	g.waitLimit, g.makeRoom = waitLimit, makeRoom
}

// ErrOwnLimit: the company's own mailings have all places that it may have.
var ErrOwnLimit = errors.New("the company's own mailings have all its places")

// Enter waits for a place until ctx ends. leave gives it back.
func (g *Gate) Enter(ctx context.Context, company uuid.UUID) (leave func(), err error) {
	own := g.join(company)
	if !own.slots.TryAcquire(1) { // Acquire fails when ctx has ended, even if there is room
		if err := own.slots.Acquire(ctx, 1); err != nil {
			g.part(company, own)
			return nil, errors.Join(ErrOwnLimit, err)
		}
	}
	if err := g.acquire(ctx); err != nil {
		own.slots.Release(1)
		g.part(company, own)
		return nil, err
	}
	return func() {
		g.all.Release(1)
		own.slots.Release(1)
		g.part(company, own)
	}, nil
}

// acquire waits for one of the places of all.
func (g *Gate) acquire(ctx context.Context) error {
	if g.all.TryAcquire(1) {
		return nil
	}
	if g.makeRoom != nil {
		done := make(chan struct{})
		defer close(done)
		go g.repeatMakeRoom(done)
	}
	return g.all.Acquire(ctx, 1)
}

// repeatMakeRoom calls makeRoom until done is closed.
func (g *Gate) repeatMakeRoom(done <-chan struct{}) {
	tick := time.NewTicker(g.waitLimit)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			g.makeRoom()
		case <-done:
			return
		}
	}
}

func (g *Gate) join(company uuid.UUID) *share {
	g.mu.Lock()
	defer g.mu.Unlock()
	own, ok := g.own[company]
	if !ok {
		own = &share{slots: semaphore.NewWeighted(g.ofEach)}
		g.own[company] = own
	}
	own.users++
	return own
}

func (g *Gate) part(company uuid.UUID, own *share) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if own.users--; own.users == 0 {
		delete(g.own, company)
	}
}
