package webhook

import (
	"context"
	"slices"
	"sync"

	"github.com/google/uuid"
)

// slots limits the requests in flight in this process: in total, per company, and to endpoints that are slow or failing
// (unhealthy), which together have at most half of the slots. Waiting companies take turns, so a company with many
// endpoints, or with endpoints that hang, delays only itself. A request that becomes slow moves to a slot for slow
// requests if one is free: if endpoints of many companies begin to hang at the same time, they occupy the other slots
// for 2 s, not until their requests time out.
type slots struct {
	max, maxPerCompany, maxUnhealthy, maxSlow int

	mu            sync.Mutex
	used          int
	usedUnhealthy int
	usedSlow      int
	usedOfCompany map[uuid.UUID]int
	waiting       map[uuid.UUID][]*waiter
	turns         []uuid.UUID // waiting companies, the next one first
}

type waiter struct {
	company   uuid.UUID
	unhealthy bool
	entered   chan struct{}

	isSlow, left bool
}

// slowFactor is the number of slots for slow requests per other slot. A request that waits for its response takes
// memory and a connection, but hardly any CPU time.
const slowFactor = 4

func newSlots(limit, perCompany int) *slots {
	return &slots{
		max: limit, maxPerCompany: min(perCompany, limit), maxUnhealthy: max(limit/2, 1), maxSlow: slowFactor * limit,
		usedOfCompany: map[uuid.UUID]int{}, waiting: map[uuid.UUID][]*waiter{},
	}
}

// enter waits for a slot. The caller must call leave once.
func (s *slots) enter(ctx context.Context, company uuid.UUID, unhealthy bool) (*waiter, error) {
	w := &waiter{company: company, unhealthy: unhealthy, entered: make(chan struct{})}
	s.mu.Lock()
	if len(s.waiting[company]) == 0 {
		s.turns = append(s.turns, company)
	}
	s.waiting[company] = append(s.waiting[company], w)
	s.admit()
	s.mu.Unlock()
	select {
	case <-w.entered:
		return w, nil
	case <-ctx.Done():
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	select {
	case <-w.entered: // entered at the same moment
		s.release(w)
	default:
		s.remove(w)
	}
	return nil, ctx.Err()
}

func (s *slots) leave(w *waiter) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.release(w)
}

// markSlow moves a request to a slot for slow requests if one is free.
func (s *slots) markSlow(w *waiter) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if w.left || s.usedSlow >= s.maxSlow {
		return
	}
	w.isSlow = true
	s.usedSlow++
	s.releaseSlot(w)
	s.admit()
}

// releaseSlot frees a slot that is not for slow requests.
func (s *slots) releaseSlot(w *waiter) {
	s.used--
	if w.unhealthy {
		s.usedUnhealthy--
	}
}

func (s *slots) release(w *waiter) {
	w.left = true
	if w.isSlow {
		s.usedSlow--
	} else {
		s.releaseSlot(w)
	}
	if s.usedOfCompany[w.company]--; s.usedOfCompany[w.company] == 0 {
		delete(s.usedOfCompany, w.company)
	}
	s.admit()
}

// admit gives free slots to waiters, one of each company in turn.
func (s *slots) admit() {
	for skipped := 0; s.used < s.max && skipped < len(s.turns); {
		company := s.turns[0]
		s.turns = s.turns[1:]
		w := s.next(company)
		if w == nil {
			skipped++
			s.turns = append(s.turns, company)
			continue
		}
		skipped = 0
		s.used++
		s.usedOfCompany[company]++
		if w.unhealthy {
			s.usedUnhealthy++
		}
		s.remove(w)
		if len(s.waiting[company]) > 0 {
			s.turns = append(s.turns, company)
		}
		close(w.entered)
	}
}

// next returns the company's first waiter that may enter.
func (s *slots) next(company uuid.UUID) *waiter {
	if s.usedOfCompany[company] >= s.maxPerCompany {
		return nil
	}
	for _, w := range s.waiting[company] {
		if !w.unhealthy || s.usedUnhealthy < s.maxUnhealthy {
			return w
		}
	}
	return nil
}

func (s *slots) remove(w *waiter) {
	left := slices.DeleteFunc(s.waiting[w.company], func(other *waiter) bool { return other == w })
	if len(left) > 0 {
		s.waiting[w.company] = left
		return
	}
	delete(s.waiting, w.company)
	s.turns = slices.DeleteFunc(s.turns, func(c uuid.UUID) bool { return c == w.company })
}
