package pg

import (
	"context"
	"sync"
	"time"
)

const (
	// AsideTime is how long a key is kept apart after its last wait, and how long a company's
	// claims skip locked recipients. The next try comes within two seconds.
	AsideTime = 5 * time.Second
	// asideSlots bounds the connections that wait for locks: of a pool of 16, most are
	// left to all others, however many keys are locked.
	asideSlots = 2
)

// Aside remembers keys that another transaction's lock delayed a moment ago. They are
// written by statements of their own, a few at a time, until the lock is released. Otherwise each
// retry would delay the group that it joins.
type Aside[K comparable] struct {
	slots chan struct{}

	mu    sync.Mutex
	until map[K]time.Time
}

// NewAside makes an Aside without keys.
func NewAside[K comparable]() *Aside[K] {
	return &Aside[K]{slots: make(chan struct{}, asideSlots), until: map[K]time.Time{}}
}

// Holds reports whether one of the keys has to be written alone.
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

// Add keeps the keys apart from now on; a zero key is none.
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

// Remove allows the keys to be written in groups again.
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

// TryEnter takes a slot if one is free within the wait.
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
