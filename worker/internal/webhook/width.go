package webhook

import (
	"context"
	"maps"
	"sync"
	"time"

	"github.com/google/uuid"

	"email-gateway/shared/service"
)

// slow is the duration from which a response counts as slow, which lowers the width.
const slow = 2 * time.Second

// shortestInterval and longestInterval limit the interval between requests to an endpoint that throttles.
const shortestInterval, longestInterval = 10 * time.Millisecond, time.Second

// width limits the requests in flight to one endpoint by the endpoint's health: an endpoint that hangs or fails has one
// request in flight, so it takes one slot. Requests to an endpoint that throttles have an interval, which each throttled
// response extends by half and each success shortens by a sixteenth.
type width struct {
	most int

	mu       sync.Mutex
	freed    *sync.Cond
	limit    int
	active   int
	interval time.Duration // 0 = the endpoint does not throttle
	next     time.Time     // when the next request may begin
	extended time.Time     // when the interval was extended
}

func newWidth(start, most int) *width {
	w := &width{most: most, limit: start}
	w.freed = sync.NewCond(&w.mu)
	return w
}

// enter waits until one more request may be in flight. It returns false if ctx has ended.
func (w *width) enter(ctx context.Context) bool {
	defer context.AfterFunc(ctx, func() {
		w.mu.Lock() // the waiter must not miss the broadcast between its check and its wait
		defer w.mu.Unlock()
		w.freed.Broadcast()
	})()
	w.mu.Lock()
	defer w.mu.Unlock()
	for ctx.Err() == nil && w.active >= w.limit {
		w.freed.Wait()
	}
	if ctx.Err() != nil {
		return false
	}
	w.active++
	return true
}

func (w *width) leave() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.active--
	w.freed.Broadcast()
}

// pace waits until the next request may begin, or ctx has ended.
func (w *width) pace(ctx context.Context) {
	for {
		w.mu.Lock()
		now := time.Now()
		wait := w.next.Sub(now)
		if wait <= 0 {
			w.next = now.Add(w.interval)
			w.mu.Unlock()
			return
		}
		w.mu.Unlock()
		if service.Pause(ctx, wait) != nil {
			return
		}
	}
}

// adapt adjusts the limit and the interval after an attempt. slowest means that the endpoint throttles at the lowest rate.
func (w *width) adapt(o Outcome, begun time.Time) (slowest bool) {
	if o.Took > slow || !o.Delivered && !o.Throttled() {
		w.narrow()
		return o.Throttled() // and the interval would be longer
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if o.Throttled() {
		return w.extend(o, begun)
	}
	if !begun.Before(w.extended) {
		if w.interval -= w.interval / 16; w.interval < shortestInterval {
			w.interval = 0
		}
	}
	w.limit = min(w.limit+1, w.most)
	w.freed.Broadcast()
	return false
}

// extend extends the interval, which begins as twice the interval of the requests until then.
func (w *width) extend(o Outcome, begun time.Time) (slowest bool) {
	if begun.Before(w.extended) {
		return false // it was in flight already
	}
	if w.interval >= longestInterval {
		w.interval, w.extended = 0, time.Time{} // a pause follows, after which the endpoint may accept a higher rate
		return true
	}
	w.interval = max(w.interval+w.interval/2, shortestInterval)
	if w.extended.IsZero() {
		w.interval = max(w.interval, 2*o.Took/time.Duration(w.limit))
	}
	w.interval = min(w.interval, longestInterval)
	w.extended = time.Now()
	w.next = w.extended.Add(w.interval)
	return false
}

// narrow limits the endpoint to one request in flight.
func (w *width) narrow() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.limit = 1
}

// troubled reports whether the last attempt failed or was slow.
func (w *width) troubled() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.limit == 1
}

// keepInterval is how long the interval of an endpoint without deliveries is kept.
const keepInterval = time.Minute

// widthOf returns the width of an endpoint that is about to be served.
func (s *Service) widthOf(endpoint uuid.UUID) *width {
	s.mu.Lock()
	defer s.mu.Unlock()
	maps.DeleteFunc(s.throttling, func(_ uuid.UUID, w *width) bool { return !w.throttles() })
	if kept := s.throttling[endpoint]; kept != nil {
		return kept
	}
	return newWidth(startWidth, mostConcurrent)
}

// keepWidth keeps the width of an endpoint that throttles: otherwise each small group of deliveries would exceed its rate
// again.
func (s *Service) keepWidth(endpoint uuid.UUID, w *width) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if w.throttles() {
		s.throttling[endpoint] = w
	}
}

// throttles reports whether requests have an interval, and one of them was made recently.
func (w *width) throttles() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.interval > 0 && time.Since(w.next) < keepInterval
}
