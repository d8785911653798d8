package httpapi

import (
	"context"
	"sync"
	"time"

	"github.com/google/uuid"
)

// bodyLimits limit the memory and disk space of request bodies.
type bodyLimits struct {
	// ownMemory and allMemory are bytes of the bodies of one company and of all companies.
	// Bodies being received use at most ownArriving and allArriving of them, so that slow bodies
	// leave room for a complete body that is being processed.
	ownMemory, allMemory, ownArriving, allArriving int64
	// ownDisk and allDisk are bytes of bodies being received.
	ownDisk, allDisk int64
	// ownBodies limits how many bodies of a company are received at once: each has freeMemory
	// in addition.
	ownBodies int
	// evict: when there is no room for a body, the oldest bodies being received are cut off.
	evict bool
	wait  time.Duration // for memory of a complete body
}

// freeMemory is what each body may use without accounting, comparable to its connection's buffers (bytes).
const freeMemory = 4 << 10

// tenantBodies leave room for the largest body within the 8 MiB of its company, and for four
// of them in total. 512 bodies with 4 KiB each are the 2 MiB that bodies being received may not
// use.
var tenantBodies = bodyLimits{
	ownMemory: 8 << 20, allMemory: 32 << 20, ownArriving: 6 << 20, allArriving: 24 << 20,
	ownDisk: 64 << 20, allDisk: 1 << 30, ownBodies: 512, wait: 5 * time.Second,
}

// batchBodyLimits are those of batches. A company has memory for one batch of the largest size, all companies for four: three
// may wait for locks of other transactions (see batchService) and leave room for another company's.
// A batch that is being processed needs about three times its body.
var batchBodyLimits = bodyLimits{
	ownMemory: maxBatchBody + 2<<20, allMemory: 4 * (maxBatchBody + 2<<20), ownArriving: 2 << 20, allArriving: 8 << 20,
	ownDisk: 64 << 20, allDisk: 1 << 30, ownBodies: 64, wait: 5 * time.Second,
}

// forBodies makes room on disk for bodies with attachments of the given size: for a company, two that arrive, with twice
// the size for base64, and are decoded.
func (l bodyLimits) forBodies(attachments int64) bodyLimits {
	l.ownDisk = max(l.ownDisk, 2*(3*attachments))
	l.allDisk = max(l.allDisk, 4*l.ownDisk)
	return l
}

// anonymousBodies are bodies sent to the SNS route, by SNS or by anybody else. They use a
// separate budget. SNS sends a body within milliseconds, so slow bodies are cut off to make
// room for newer ones.
var anonymousBodies = bodyLimits{
	ownMemory: 8 << 20, allMemory: 8 << 20, ownArriving: 4 << 20, allArriving: 4 << 20,
	ownBodies: 512, evict: true, wait: 5 * time.Second,
}

// bodyMemory accounts for the memory and disk space of bodies.
type bodyMemory struct {
	limits bodyLimits

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

func newBodyMemory(l bodyLimits) *bodyMemory {
	return &bodyMemory{limits: l, owners: map[uuid.UUID]*bodyOwner{}, freed: make(chan struct{})}
}

// enter registers a body that begins to arrive.
func (m *bodyMemory) enter(b *inbound) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	owner := m.ownerOf(b.company)
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

// join registers memory that arrives from no client, for load.
func (m *bodyMemory) join(b *inbound) {
	m.mu.Lock()
	defer m.mu.Unlock()
	b.owner = m.ownerOf(b.company)
	b.owner.users++
}

// ownerOf returns the owner of a company's memory. m.mu must be held.
func (m *bodyMemory) ownerOf(company uuid.UUID) *bodyOwner {
	owner := m.owners[company]
	if owner == nil {
		owner = &bodyOwner{}
		m.owners[company] = owner
	}
	return owner
}

// giveBack releases a part of the memory that load has reserved.
func (m *bodyMemory) giveBack(b *inbound, n int64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.take(b, bodyUse{memory: -n})
}

// grow reserves memory for a body being received, and reports whether there was enough.
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

// evictOldest cuts off the oldest other body that uses memory. Its memory counts as free
// immediately: its handler releases it as soon as it notices. m.mu must be held.
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

// spill reserves disk space for a body being received.
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

// free releases disk space of a body whose file was closed.
func (m *bodyMemory) free(b *inbound, n int64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.take(b, bodyUse{disk: -n})
}

// load waits for memory for a body that was received to disk.
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

// take adds n, which may be negative, to the use of a body. m.mu must be held.
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

// shrink releases the memory of a body that was written to disk, down to the given size.
func (m *bodyMemory) shrink(b *inbound, to int64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if n := b.use.arriving - to; n > 0 {
		m.take(b, bodyUse{memory: -n, arriving: -n})
	}
}

// arrived marks a body as complete: the memory it still has is used for processing.
func (m *bodyMemory) arrived(b *inbound) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.take(b, bodyUse{arriving: -b.use.arriving})
	m.forget(b)
}

// release releases everything that a body uses.
func (m *bodyMemory) release(b *inbound) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.forget(b)
	m.take(b, bodyUse{memory: -b.use.memory, arriving: -b.use.arriving, disk: -b.use.disk})
	if b.owner.users--; b.owner.users == 0 {
		delete(m.owners, b.company)
	}
}

// forget removes a body from those being received. m.mu must be held.
func (m *bodyMemory) forget(b *inbound) {
	for i, other := range b.owner.bodies {
		if other == b {
			b.owner.bodies = append(b.owner.bodies[:i], b.owner.bodies[i+1:]...)
			return
		}
	}
}
