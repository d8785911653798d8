package pg

import (
	"context"
	"sync"
	"time"
)

const (
	// LockedKeyTime is how long a key stays in LockedKeys after its last lock timeout, and how long a company's claims skip
	// locked recipients. Each email is tried again within 2 s, so a key stays until its lock is released.
	LockedKeyTime = 5 * time.Second
	// lockedKeySlots limits the connections that wait for locks. Most of a pool of 16 stay free for other statements,
	// however many keys are locked.
	lockedKeySlots = 2
)

// LockedKeys holds keys for which a statement waited for another transaction's lock a moment ago. They are written in
// statements of their own, a few at a time, until the lock is released. Otherwise each retry would delay the group that
// it joins.
type LockedKeys[K comparable] struct {
	slots chan struct{}

	mu    sync.Mutex
	until map[K]time.Time
}

// NewLockedKeys returns a LockedKeys without keys.
func NewLockedKeys[K comparable]() *LockedKeys[K] {
	return &LockedKeys[K]{slots: make(chan struct{}, lockedKeySlots), until: map[K]time.Time{}}
}

// Contains reports whether one of the keys must be written alone.
func (l *LockedKeys[K]) Contains(keys ...K) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.until) == 0 {
		return false
	}
	now := time.Now()
	for _, key := range keys {
		if now.Before(l.until[key]) {
			return true
		}
	}
	return false
}

// Add adds the keys for LockedKeyTime. It ignores zero keys.
func (l *LockedKeys[K]) Add(keys ...K) {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := time.Now()
	for key, until := range l.until {
		if now.After(until) {
			delete(l.until, key)
		}
	}
	var none K
	for _, key := range keys {
		if key != none {
			l.until[key] = now.Add(LockedKeyTime)
		}
	}
}

// Remove removes the keys, which are then written in groups again.
func (l *LockedKeys[K]) Remove(keys ...K) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, key := range keys {
		delete(l.until, key)
	}
}

// Enter waits for a slot.
func (l *LockedKeys[K]) Enter(ctx context.Context) error {
	select {
	case l.slots <- struct{}{}:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// TryEnter waits for a slot at most as long as wait, and reports whether it took one.
func (l *LockedKeys[K]) TryEnter(wait time.Duration) bool {
	late := time.NewTimer(wait)
	defer late.Stop()
	select {
	case l.slots <- struct{}{}:
		return true
	case <-late.C:
		return false
	}
}

// Leave frees the slot.
func (l *LockedKeys[K]) Leave() { <-l.slots }
