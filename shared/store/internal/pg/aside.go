package pg

import (
	"context"
	"sync"
	"time"
)

const (
	// AsideTime is how long a key stays in an Aside after its last lock timeout, and how long a company's claims skip
	// locked recipients. The next try comes within two seconds.
	AsideTime = 5 * time.Second
	// asideSlots limits the connections that wait for locks. Most of a pool of 16 stay free for other statements,
	// however many keys are locked.
	asideSlots = 2
)

// Aside holds keys for which a statement waited for another transaction's lock a moment ago. They are written in
// statements of their own, a few at a time, until the lock is released. Otherwise each retry would delay the group that
// it joins.
type Aside[K comparable] struct {
	slots chan struct{}

	mu    sync.Mutex
	until map[K]time.Time
}

// NewAside makes an Aside without keys.
func NewAside[K comparable]() *Aside[K] {
	return &Aside[K]{slots: make(chan struct{}, asideSlots), until: map[K]time.Time{}}
}

// Holds reports whether one of the keys must be written alone.
func (a *Aside[K]) Holds(keys ...K) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	if len(a.until) == 0 {
		return false
	}
	now := time.Now()
	for _, key := range keys {
		if now.Before(a.until[key]) {
			return true
		}
	}
	return false
}

// Add adds the keys for AsideTime. It ignores zero keys.
func (a *Aside[K]) Add(keys ...K) {
	a.mu.Lock()
	defer a.mu.Unlock()
	now := time.Now()
	for key, until := range a.until {
		if now.After(until) {
			delete(a.until, key)
		}
	}
	var none K
	for _, key := range keys {
		if key != none {
			a.until[key] = now.Add(AsideTime)
		}
	}
}

// Remove removes the keys, which are then written in groups again.
func (a *Aside[K]) Remove(keys ...K) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, key := range keys {
		delete(a.until, key)
	}
}

// Enter waits for a slot.
func (a *Aside[K]) Enter(ctx context.Context) error {
	select {
	case a.slots <- struct{}{}:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// TryEnter waits for a slot at most as long as wait, and reports whether it took one.
func (a *Aside[K]) TryEnter(wait time.Duration) bool {
	late := time.NewTimer(wait)
	defer late.Stop()
	select {
	case a.slots <- struct{}{}:
		return true
	case <-late.C:
		return false
	}
}

// Leave frees the slot.
func (a *Aside[K]) Leave() { <-a.slots }
