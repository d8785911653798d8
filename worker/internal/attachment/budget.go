package attachment

import (
	"context"
	"sync"
	"time"

	"github.com/google/uuid"
)

const (
	// budgetBytes is how much memory the attachments of all emails in flight have, with their base64 in the provider's request.
	budgetBytes = 64 << 20
	// ownPart is the part of the budget, in quarters, that one company has while it has more than one email in flight.
	ownPart = 3
	// budgetWait limits how long an email waits for its turn, and budgetWaiters how many do: each occupies a place of the
	// worker's concurrency. Further ones go back to the outbox at once.
	budgetWait    = 250 * time.Millisecond
	budgetWaiters = 2
)

// budget limits the emails with attachments that are in flight: their bytes, so that memory is bounded, and their number, so
// that slow uploads and a slow storage leave half of the worker's concurrency to other emails.
type budget struct {
	bytes  int64
	emails func() int // the most at once
	wait   time.Duration

	mu      sync.Mutex
	used    int64
	count   int
	own     map[uuid.UUID]*share
	waiting int
	freed   chan struct{} // closed and replaced when there is more room
}

// share is what a company's emails use.
type share struct {
	used    int64
	count   int
	waiting int
}

func newBudget(emails func() int) *budget {
	return &budget{bytes: budgetBytes, emails: emails, wait: budgetWait, own: map[uuid.UUID]*share{}, freed: make(chan struct{})}
}

// weight is the memory of an email with attachments of this size: the content, and its base64 in a buffer of the AWS SDK that
// grows by doubling, and what the collector has not freed yet: measured with files of 5 MiB.
func weight(size int64) int64 { return 6 * size }

// acquire waits for a turn; ok is false if there is none in time, or if others wait already.
func (b *budget) acquire(ctx context.Context, company uuid.UUID, size int64) (release func(), ok bool) {
	n := min(weight(size), b.bytes) // the largest email goes alone
	late := time.NewTimer(b.wait)
	defer late.Stop()
	b.mu.Lock()
	defer b.mu.Unlock()
	s := b.own[company]
	if s == nil {
		s = &share{}
		b.own[company] = s
	}
	defer b.forget(company, s)
	for !b.fits(s, n) {
		if !b.mayWait(s) {
			return nil, false
		}
		b.waiting++
		s.waiting++
		freed := b.freed
		b.mu.Unlock()
		stopped := false
		select {
		case <-freed:
		case <-late.C:
			stopped = true
		case <-ctx.Done():
			stopped = true
		}
		b.mu.Lock()
		b.waiting--
		s.waiting--
		if stopped {
			return nil, false
		}
	}
	b.used, b.count = b.used+n, b.count+1
	s.used, s.count = s.used+n, s.count+1
	return sync.OnceFunc(func() { b.release(company, s, n) }), true
}

// mayWait leaves one of the places to another company.
func (b *budget) mayWait(s *share) bool {
	return b.waiting < budgetWaiters && s.waiting < budgetWaiters-1
}

func (b *budget) fits(s *share, n int64) bool {
	switch {
	case b.used+n > b.bytes, b.count >= max(2, b.emails()):
		return false
	case s.count == 0:
		return true
	}
	return s.used+n <= b.bytes/4*ownPart && s.count < max(1, b.emails()/4*ownPart)
}

func (b *budget) release(company uuid.UUID, s *share, n int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.used, b.count = b.used-n, b.count-1
	s.used, s.count = s.used-n, s.count-1
	b.forget(company, s)
	close(b.freed)
	b.freed = make(chan struct{})
}

// forget drops the share of a company without emails. b.mu must be held.
func (b *budget) forget(company uuid.UUID, s *share) {
	if s.count == 0 && s.waiting == 0 && b.own[company] == s {
		delete(b.own, company)
	}
}
