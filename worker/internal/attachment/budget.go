package attachment

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/google/uuid"
)

const (
	// budgetBytes is how much memory the attachments and large bodies of all emails in flight have, with their copies in the
	// provider's request.
	budgetBytes = 64 << 20
	// ownPart is the part of the budget, in quarters, that one company has while it has more than one email in flight.
	ownPart = 3
	// budgetWait limits how long an email waits for its turn, and budgetWaiters how many do: each occupies a place of the
	// worker's concurrency. Further ones go back to the outbox at once.
	budgetWait    = 250 * time.Millisecond
	budgetWaiters = 2
)

// budget limits the emails with attachments or large bodies that are in flight: their bytes, so that memory is bounded,
// and the number of those with attachments, so that slow uploads and a slow storage leave half of the worker's
// concurrency to other emails.
type budget struct {
	bytes  int64
	emails func() int // the most with attachments at once
	wait   time.Duration

	mu      sync.Mutex
	used    int64
	count   int // emails with attachments
	own     map[uuid.UUID]*share
	waiting int
	freed   chan struct{} // closed and replaced when there is more room

	reserved reservations
}

// share is what a company's emails use.
type share struct {
	used     int64
	inFlight int // emails
	count    int // those with attachments
	waiting  int
}

// need is what an email takes from the budget.
type need struct {
	weight int64 // of its memory
	place  int   // 1 with attachments, else 0
}

func newBudget(emails func() int) *budget {
	return &budget{bytes: budgetBytes, emails: emails, wait: budgetWait, own: map[uuid.UUID]*share{}, freed: make(chan struct{})}
}

// weight is the memory of an email with attachments and a body of these sizes: the content, its copy in a buffer of the
// AWS SDK that grows by doubling (attachments in base64), and what the collector has not freed yet. It was measured
// with files of 5 MiB and bodies of 1 MiB: six bodies in flight cost 65 MiB, nine 87.
func weight(files, body int64) int64 { return 6*files + 8*body }

// errBusy: there is no room. errReserved: the email has a reservation, but no room became free in time. It keeps the
// reservation for returnTime.
var (
	errBusy     = errors.New("no memory or slot for the attachments or the body")
	errReserved = errors.New("no memory or slot for the attachments or the body yet; the reservation is kept")
)

// acquire waits for a turn. It fails with errBusy or errReserved if there is none in time, or if others wait already.
func (b *budget) acquire(ctx context.Context, company, owner uuid.UUID, n need) (release func(), err error) {
	n.weight = min(n.weight, b.bytes) // the largest email goes alone
	b.mu.Lock()
	defer b.mu.Unlock()
	s := b.own[company]
	if s == nil {
		s = &share{}
		b.own[company] = s
	}
	defer b.forget(company, s)
	c := b.reserved.ask(company, owner, s, n, time.Now())
	late := time.NewTimer(b.wait)
	defer late.Stop()
	held := b.reserved.holder == c
	if held {
		late.Reset(reservedWait)
	}
	for !b.admits(c) {
		switch now := time.Now(); {
		case held && b.reserved.holder != c: // another email comes first
			b.reserved.refuse(c, now)
			return nil, errBusy
		case !held && b.reserved.take(c, now):
			held = true
			late.Reset(reservedWait)
			b.wake() // the holder before it stops waiting
		case !held && !b.mayWait(s):
			b.reserved.refuse(c, now)
			return nil, errBusy
		}
		if !b.waitForRoom(ctx, s, late) {
			return nil, b.late(ctx, c)
		}
	}
	b.reserved.admitted(c, time.Now())
	b.use(s, n)
	if held {
		b.wake() // what was reserved and not needed
	}
	return sync.OnceFunc(func() { b.release(company, s, n) }), nil
}

// waitForRoom waits until there may be more room; ok is false if the time is over. b.mu must be held.
func (b *budget) waitForRoom(ctx context.Context, s *share, late *time.Timer) (ok bool) {
	b.waiting++
	s.waiting++
	freed := b.freed
	b.mu.Unlock()
	select {
	case <-freed:
		ok = true
	case <-late.C:
	case <-ctx.Done():
	}
	b.mu.Lock()
	b.waiting--
	s.waiting--
	return ok
}

// late ends the wait of an email. b.mu must be held.
func (b *budget) late(ctx context.Context, c *candidate) error {
	now := time.Now()
	b.reserved.refuse(c, now)
	switch {
	case b.reserved.holder != c:
		return errBusy
	case ctx.Err() != nil: // it may come back at another worker
		b.reserved.holder = nil
		b.wake()
		return errBusy
	}
	c.away = now.Add(returnTime)
	return errReserved
}

// mayWait leaves one of the places to another company.
func (b *budget) mayWait(s *share) bool {
	return b.waiting < budgetWaiters && s.waiting < budgetWaiters-1
}

// admits reports whether an email fits beside the room of the email with the reservation. b.mu must be held.
func (b *budget) admits(c *candidate) bool {
	if !b.fits(c.own, c.need) {
		return false
	}
	h := b.reserved.leaveRoom(c, time.Now())
	if h == nil {
		return true
	}
	used, count := int64(0), 0 // by the holder's company
	if own := b.own[h.company]; own != nil {
		used, count = own.used, own.count
	}
	bytes, emails := b.ownLimits()
	others, otherCount := b.used-used, b.count-count
	if h.company == c.company {
		used, count = used+c.weight, count+c.place
		if used+h.weight > bytes || count+h.place > emails {
			return false
		}
	} else {
		// The holder is admitted when its company uses no more than this.
		others, otherCount = others+c.weight, otherCount+c.place
		used, count = min(used, max(0, bytes-h.weight)), min(count, emails-h.place)
		if h.weight > bytes {
			count = 0
		}
	}
	return others+used+h.weight <= b.bytes && otherCount+count+h.place <= b.places()
}

func (b *budget) fits(s *share, n need) bool {
	switch {
	case b.used+n.weight > b.bytes, b.count+n.place > b.places():
		return false
	case s.inFlight == 0:
		return true
	}
	bytes, emails := b.ownLimits()
	return s.used+n.weight <= bytes && s.count+n.place <= emails
}

func (b *budget) places() int { return max(2, b.emails()) }

// ownLimits are those of a company with more than one email in flight.
func (b *budget) ownLimits() (bytes int64, emails int) {
	return b.bytes / 4 * ownPart, max(1, b.emails()/4*ownPart)
}

func (b *budget) use(s *share, n need) {
	b.used, b.count = b.used+n.weight, b.count+n.place
	s.used, s.count, s.inFlight = s.used+n.weight, s.count+n.place, s.inFlight+1
}

func (b *budget) release(company uuid.UUID, s *share, n need) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.used, b.count = b.used-n.weight, b.count-n.place
	s.used, s.count, s.inFlight = s.used-n.weight, s.count-n.place, s.inFlight-1
	b.forget(company, s)
	b.wake()
}

// wake makes the waiting emails look for room again. b.mu must be held.
func (b *budget) wake() {
	close(b.freed)
	b.freed = make(chan struct{})
}

// forget drops the share of a company without emails. b.mu must be held.
func (b *budget) forget(company uuid.UUID, s *share) {
	if s.inFlight == 0 && s.waiting == 0 && b.own[company] == s {
		delete(b.own, company)
	}
}
