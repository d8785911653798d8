package webhook

import (
	"context"
	"maps"
	"sync"
	"time"

	"github.com/google/uuid"

	"email-gateway/shared/service"
	hooks "email-gateway/shared/store/webhook"
)

// slow is the duration from which a response counts as slow, which lowers the width.
const slow = 2 * time.Second

// shortestInterval and longestInterval limit the interval between requests to an endpoint that throttles.
const shortestInterval, longestInterval = 10 * time.Millisecond, time.Second

// width limits the requests in flight to one endpoint by the endpoint's health: an endpoint that hangs or fails has one
// request in flight, so it takes one slot. Requests to an endpoint that throttles have an interval, which a throttled
// response extends by half and a success shortens by a sixth. The interval grows only if more than 31 % of the responses
// are throttled. Otherwise the rate would fall to the lowest for an endpoint that throttles some requests at any rate, such
// as one with a backend that is broken. An endpoint with a fixed rate gets about 1.5 times that rate.
type width struct {
	start, most int

	mu       sync.Mutex
	url      string
	freed    *sync.Cond
	limit    int
	active   int
	interval time.Duration // 0 = the endpoint does not throttle
	next     time.Time     // when the next request may begin
	extended time.Time     // when the interval was extended
}

func newWidth(start, most int) *width {
	w := &width{start: start, most: most, limit: start}
	w.freed = sync.NewCond(&w.mu)
	return w
}

// use resets the width if the URL has changed. No request may be in flight.
func (w *width) use(url string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if url != w.url {
		w.url, w.limit, w.interval, w.next, w.extended = url, w.start, 0, time.Time{}, time.Time{}
	}
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

// pace waits until the next request may begin, ctx has ended, or stopped is true. A caller that is stopped does not use the
// interval: otherwise the next round would wait for the intervals of all its requests.
func (w *width) pace(ctx context.Context, stopped func() bool) {
	for !stopped() {
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
		if w.interval -= w.interval / 6; w.interval < shortestInterval {
			w.interval = 0
		}
	}
	w.limit = min(w.limit+1, w.most)
	w.freed.Broadcast()
	return false
}

// extend extends the interval. The first interval is twice that of the requests until then.
func (w *width) extend(o Outcome, begun time.Time) (slowest bool) {
	if begun.Before(w.extended) {
		return false // it was in flight already
	}
	slowest = w.interval >= longestInterval
	w.interval = max(w.interval+w.interval/2, shortestInterval)
	if w.extended.IsZero() {
		w.interval = max(w.interval, 2*o.Took/time.Duration(w.limit))
	}
	w.interval = min(w.interval, longestInterval)
	w.extended = time.Now()
	w.next = w.extended.Add(w.interval)
	return slowest
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

// keepInterval is how long the interval of an endpoint without deliveries is kept. It is longer than a pause, after which
// requests begin at the lowest rate.
const keepInterval = hooks.MaxThrottlePause + time.Minute

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
