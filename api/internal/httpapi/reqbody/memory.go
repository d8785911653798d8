package reqbody

import (
	"context"
	"sync"
	"time"

	"github.com/google/uuid"

	"email-gateway/api/internal/httpapi/problem"
)

// Memory accounts for the memory and disk space of bodies.
type Memory struct {
	limits Limits

	mu     sync.Mutex
	all    bodyUse
	owners map[uuid.UUID]*bodyOwner // owners with at least one body
	freed  chan struct{}            // closed and replaced when there is more room
}

// bodyUse is what bodies use. arriving is a part of memory.
type bodyUse struct{ memory, arriving, disk int64 }

// bodyOwner is a company, or uuid.Nil for requests without a key.
type bodyOwner struct {
	use    bodyUse
	bodies []*inbound // being received, oldest first
	users  int        // bodies being received or processed
}

// NewMemory returns a Memory without bodies.
func NewMemory(l Limits) *Memory {
	return &Memory{limits: l, owners: map[uuid.UUID]*bodyOwner{}, freed: make(chan struct{})}
}

// enter registers a body that begins to arrive.
func (m *Memory) enter(b *inbound) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	owner := m.ownerOf(b.company)
	if len(owner.bodies) >= m.limits.ownBodies {
		if !m.limits.evict {
			return tooManyBodies
		}
		owner.bodies[0].abort()
		owner.bodies = owner.bodies[1:]
	}
	owner.users++
	owner.bodies = append(owner.bodies, b)
	b.owner = owner
	return nil
}

// join registers memory that arrives from no client, for load.
func (m *Memory) join(b *inbound) {
	m.mu.Lock()
	defer m.mu.Unlock()
	b.owner = m.ownerOf(b.company)
	b.owner.users++
}

// ownerOf returns the owner of a company's memory. m.mu must be held.
func (m *Memory) ownerOf(company uuid.UUID) *bodyOwner {
	owner := m.owners[company]
	if owner == nil {
		owner = &bodyOwner{}
		m.owners[company] = owner
	}
	return owner
}

// unreserve releases a part of the memory that load has reserved.
func (m *Memory) unreserve(b *inbound, n int64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.take(b, bodyUse{memory: -n})
}

// grow reserves memory for a body being received, and reports whether there was enough.
func (m *Memory) grow(b *inbound, n int64) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	for m.all.arriving+n > m.limits.allArriving || b.owner.use.arriving+n > m.limits.ownArriving ||
		m.all.memory+n > m.limits.allMemory || b.owner.use.memory+n > m.limits.ownMemory {
		if !m.limits.evict || !m.evictOldest(b) {
			return false
		}
	}
	m.take(b, bodyUse{memory: n, arriving: n})
	return true
}

// evictOldest cuts off the oldest other body that uses memory. Its memory counts as free
// immediately: its handler releases it as soon as it notices. m.mu must be held.
func (m *Memory) evictOldest(but *inbound) bool {
	for _, other := range but.owner.bodies {
		if other != but && other.use.arriving > 0 {
			other.abort()
			m.take(other, bodyUse{memory: -other.use.arriving, arriving: -other.use.arriving})
			return true
		}
	}
	return false
}

// spill reserves disk space for a body being received.
func (m *Memory) spill(b *inbound, n int64) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	switch {
	case b.owner.use.disk+n > m.limits.ownDisk && m.limits.ownDisk > 0:
		return tooManyBodies
	case m.all.disk+n > m.limits.allDisk:
		return problem.Busy
	}
	m.take(b, bodyUse{disk: n})
	return nil
}

// free releases disk space of a body whose file was closed.
func (m *Memory) free(b *inbound, n int64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.take(b, bodyUse{disk: -n})
}

// load waits for memory for a body that was received to disk.
func (m *Memory) load(ctx context.Context, b *inbound, n int64) error {
	late := time.NewTimer(m.limits.wait)
	defer late.Stop()
	for {
		m.mu.Lock()
		own := b.owner.use.memory+n <= m.limits.ownMemory
		if own && m.all.memory+n <= m.limits.allMemory {
			m.take(b, bodyUse{memory: n})
			m.mu.Unlock()
			return nil
		}
		freed := m.freed
		m.mu.Unlock()
		select {
		case <-freed:
		case <-ctx.Done():
			return ctx.Err()
		case <-late.C:
			if !own {
				return tooManyBodies
			}
			return problem.Busy
		}
	}
}

// take adds n, which may be negative, to the use of a body. m.mu must be held.
func (m *Memory) take(b *inbound, n bodyUse) {
	for _, use := range []*bodyUse{&m.all, &b.owner.use, &b.use} {
		use.memory += n.memory
		use.arriving += n.arriving
		use.disk += n.disk
	}
	if n.memory < 0 {
		close(m.freed)
		m.freed = make(chan struct{})
	}
}

// shrink releases the memory of a body that was written to disk, down to the given size.
func (m *Memory) shrink(b *inbound, to int64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if n := b.use.arriving - to; n > 0 {
		m.take(b, bodyUse{memory: -n, arriving: -n})
	}
}

// arrived marks a body as complete: the memory it still has is used for processing.
func (m *Memory) arrived(b *inbound) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.take(b, bodyUse{arriving: -b.use.arriving})
	m.forget(b)
}

// release releases everything that a body uses.
func (m *Memory) release(b *inbound) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.forget(b)
	m.take(b, bodyUse{memory: -b.use.memory, arriving: -b.use.arriving, disk: -b.use.disk})
	if b.owner.users--; b.owner.users == 0 {
		delete(m.owners, b.company)
	}
}

// forget removes a body from those being received. m.mu must be held.
func (m *Memory) forget(b *inbound) {
	for i, other := range b.owner.bodies {
		if other == b {
			b.owner.bodies = append(b.owner.bodies[:i], b.owner.bodies[i+1:]...)
			return
		}
	}
}
