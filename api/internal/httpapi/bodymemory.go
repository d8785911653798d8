package httpapi

import (
	"context"
	"sync"
	"time"

	"github.com/google/uuid"
)

// bodyLimits bound what bodies take while they arrive and are worked on.
type bodyLimits struct {
	// ownMemory and allMemory are bytes of one company's bodies and of all. Bodies that
	// arrive take at most ownArriving and allArriving of it, so that slow ones leave room
	// for one that has arrived and is worked on.
	ownMemory, allMemory, ownArriving, allArriving int64
	// ownDisk and allDisk are bytes of those that arrive.
	ownDisk, allDisk int64
	// ownBodies is how many of a company may arrive at once: each has freeMemory besides.
	ownBodies int
	// evict: when there is no room for a body, the oldest ones that still arrive are cut off.
	evict bool
	wait  time.Duration // for memory, of one that has arrived
}

// freeMemory is what each body has without asking: as much as its connection has anyway.
const freeMemory = 4 << 10

// tenantBodies leave the largest body room in the 8 MiB of its company, and four of them in
// all memory. 512 bodies with 4 KiB each are the 2 MiB that bodies that arrive may not take.
var tenantBodies = bodyLimits{
	ownMemory: 8 << 20, allMemory: 32 << 20, ownArriving: 6 << 20, allArriving: 24 << 20,
	ownDisk: 64 << 20, allDisk: 1 << 30, ownBodies: 512, wait: 5 * time.Second,
}

// anonymousBodies are SNS's, and those of anybody else who sends to its route. They take
// nothing from the tenants. SNS sends a body within milliseconds, so slow bodies are cut off
// to make room for newer ones.
var anonymousBodies = bodyLimits{
	ownMemory: 8 << 20, allMemory: 8 << 20, ownArriving: 4 << 20, allArriving: 4 << 20,
	ownBodies: 512, evict: true, wait: 5 * time.Second,
}

// bodyMemory counts what bodies take.
type bodyMemory struct {
	limits bodyLimits

	mu     sync.Mutex
	all    bodyUse
	owners map[uuid.UUID]*bodyOwner // that have any
	freed  chan struct{}            // closed and replaced when there is more room
}

// bodyUse is what bodies take. arriving is a part of memory.
type bodyUse struct{ memory, arriving, disk int64 }

// bodyOwner is a company, or uuid.Nil for everybody without a key.
type bodyOwner struct {
	use    bodyUse
	bodies []*inbound // that arrive, oldest first
	users  int        // bodies that arrive or are worked on
}

func newBodyMemory(l bodyLimits) *bodyMemory {
	return &bodyMemory{limits: l, owners: map[uuid.UUID]*bodyOwner{}, freed: make(chan struct{})}
}

// enter counts a body that begins to arrive.
func (m *bodyMemory) enter(b *inbound) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	owner := m.owners[b.company]
	if owner == nil {
		owner = &bodyOwner{}
		m.owners[b.company] = owner
	}
	if len(owner.bodies) >= m.limits.ownBodies {
		if !m.limits.evict {
			return tooManyBodies
		}
		owner.bodies[0].cut()
		owner.bodies = owner.bodies[1:]
	}
	owner.users++
	owner.bodies = append(owner.bodies, b)
	b.owner = owner
	return nil
}

// grow takes memory for a body that arrives, or says that there is none.
func (m *bodyMemory) grow(b *inbound, n int64) bool {
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

// evictOldest cuts off the oldest other body that has memory. What it has counts as free at
// once: it is, as soon as its handler notices. m.mu is held.
func (m *bodyMemory) evictOldest(but *inbound) bool {
	for _, other := range but.owner.bodies {
		if other != but && other.use.arriving > 0 {
			other.cut()
			m.take(other, bodyUse{memory: -other.use.arriving, arriving: -other.use.arriving})
			return true
		}
	}
	return false
}

// spill takes room on the disk for a body that arrives.
func (m *bodyMemory) spill(b *inbound, n int64) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	switch {
	case b.owner.use.disk+n > m.limits.ownDisk && m.limits.ownDisk > 0:
		return tooManyBodies
	case m.all.disk+n > m.limits.allDisk:
		return busy
	}
	m.take(b, bodyUse{disk: n})
	return nil
}

// load waits for memory for a body that has arrived on the disk.
func (m *bodyMemory) load(ctx context.Context, b *inbound, n int64) error {
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
			return busy
		}
	}
}

// take counts what a body takes, or gives back. m.mu is held.
func (m *bodyMemory) take(b *inbound, n bodyUse) {
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

// shrink gives memory back that a body has written to the disk, down to so much.
func (m *bodyMemory) shrink(b *inbound, to int64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if n := b.use.arriving - to; n > 0 {
		m.take(b, bodyUse{memory: -n, arriving: -n})
	}
}

// arrived says that a body has arrived: what it still has, it is worked on with.
func (m *bodyMemory) arrived(b *inbound) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.take(b, bodyUse{arriving: -b.use.arriving})
	m.forget(b)
}

// leave gives everything back.
func (m *bodyMemory) leave(b *inbound) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.forget(b)
	m.take(b, bodyUse{memory: -b.use.memory, arriving: -b.use.arriving, disk: -b.use.disk})
	if b.owner.users--; b.owner.users == 0 {
		delete(m.owners, b.company)
	}
}

// forget takes a body out of those that arrive. m.mu is held.
func (m *bodyMemory) forget(b *inbound) {
	for i, other := range b.owner.bodies {
		if other == b {
			b.owner.bodies = append(b.owner.bodies[:i], b.owner.bodies[i+1:]...)
			return
		}
	}
}
