package inflight

import (
	"context"
	"math"
	"slices"
	"sync"
	"time"
)

// joins: Server n takes tasks while 1/joins of the concurrency of Servers 0…n-1 is in flight, or while polls return tasks. A
// Server takes one task after the other, so a single one is too slow for the rate if the machine is busy or the latency to Redis
// is high.
const (
	joins = 4
	// inRow is the number of tasks after which more tasks are assumed to be ready, and dry the number of consecutive
	// empty answers after which none are: each of eight Servers checks up to three queues for its next task.
	inRow = 16
	dry   = 24
)

// slots counts the emails in flight and blocks further ones at the limit. An email is in flight
// from the request for its task until its handler has ended.
type slots struct {
	mu      sync.Mutex
	limit   int
	taken   int
	waiting []*waiter
	// expected holds the admissions whose tasks were taken and whose handlers have not started, oldest first.
	expected []admission

	tasks int // tasks taken since the queues were last empty
	empty int // consecutive empty answers

	since        time.Time     // last change of taken or limit
	atLimit      time.Duration // how long the limit was reached
	inFlightTime time.Duration // total time of all emails in flight
	asked        time.Time     // when mean was last called
}

// waiter waits for a slot.
type waiter struct {
	others  int // see Limiter.Admit
	granted chan struct{}
}

// admission is an admission whose task was taken.
type admission struct{ admitted, taken time.Time }

func newSlots(limit int) *slots {
	now := time.Now()
	return &slots{limit: limit, since: now, asked: now}
}

// acquire waits for a slot.
func (s *slots) acquire(ctx context.Context, others int) error {
	s.mu.Lock()
	w := &waiter{others: others, granted: make(chan struct{})}
	s.waiting = append(s.waiting, w)
	s.grant()
	s.mu.Unlock()
	select {
	case <-w.granted:
		return nil
	case <-ctx.Done():
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	i := slices.Index(s.waiting, w)
	if i < 0 {
		return nil // granted at the same time
	}
	s.waiting = slices.Delete(s.waiting, i, i+1)
	return context.Cause(ctx)
}

// release frees a slot.
func (s *slots) release() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.change(-1)
}

// unused frees the slot of an admission without a task.
func (s *slots) unused() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.empty++; s.empty >= dry {
		s.tasks = 0
	}
	s.change(-1)
}

// use records that a task was taken for an admission. Its handler starts soon.
func (s *slots) use(admitted time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.expected = append(s.expected, admission{admitted, time.Now()})
	s.tasks, s.empty = s.tasks+1, 0
	s.grant()
}

// begin returns the time when the starting task was admitted, or zero if it is unknown: the task then takes a slot
// beyond the limit. Tasks that were taken at the same time may start in another order, but the difference between their
// times is negligible.
func (s *slots) begin() time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.expected) == 0 {
		s.change(+1)
		return time.Time{}
	}
	// Use the newest admission: one whose handler never starts becomes the oldest, and forget removes it.
	last := s.expected[len(s.expected)-1]
	s.expected = s.expected[:len(s.expected)-1]
	return last.admitted
}

// forget frees the slots of tasks that were taken before then and whose handlers have not started: the queue's client
// has dropped these tasks. It returns their number.
func (s *slots) forget(then time.Time) (n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for n < len(s.expected) && s.expected[n].taken.Before(then) {
		n++
	}
	s.expected = s.expected[n:]
	s.change(-n)
	return n
}

// setLimit changes the limit. Emails in flight above a lower limit end normally.
func (s *slots) setLimit(limit int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.measure()
	s.limit = limit
	s.grant()
}

// change adds n emails in flight. s.mu must be held.
func (s *slots) change(n int) {
	s.measure()
	s.taken += n
	s.grant()
}

// grant admits waiters in order. An admission may enable an earlier waiter. s.mu must be held.
func (s *slots) grant() {
	for i := 0; i < len(s.waiting) && s.taken < s.limit; i++ {
		w := s.waiting[i]
		// The Servers before the waiter's get tasks first.
		if s.tasks < inRow && (s.limit <= w.others || s.taken < w.others/joins) {
			continue
		}
		s.measure()
		s.taken++
		s.waiting = slices.Delete(s.waiting, i, i+1)
		close(w.granted)
		i = -1
	}
}

// measure adds the time since the last change to the totals. s.mu must be held.
func (s *slots) measure() {
	now := time.Now()
	length := now.Sub(s.since)
	if s.taken >= s.limit {
		s.atLimit += length
	}
	s.inFlightTime += time.Duration(s.taken) * length
	s.since = now
}

// timeAtLimit returns how long the limit was reached since the last call.
func (s *slots) timeAtLimit() time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.measure()
	atLimit := s.atLimit
	s.atLimit = 0
	return atLimit
}

// mean returns the mean number of emails in flight since the last call.
func (s *slots) mean() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.measure()
	length, inFlightTime := s.since.Sub(s.asked), s.inFlightTime
	s.inFlightTime, s.asked = 0, s.since
	if length <= 0 {
		return s.taken
	}
	return int(math.Round(float64(inFlightTime) / float64(length)))
}

func (s *slots) current() (limit, taken int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.limit, s.taken
}
