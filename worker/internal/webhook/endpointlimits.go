package webhook

import (
	"context"
	"maps"
	"sync"
	"time"

	"github.com/google/uuid"

	"email-gateway/shared/service"
	webhookstore "email-gateway/shared/store/webhook"
)

// slowAfter is the duration from which a response counts as slow, which lowers the limit.
const slowAfter = 2 * time.Second

// minInterval and maxInterval limit the interval between requests to an endpoint that throttles.
const minInterval, maxInterval = 10 * time.Millisecond, time.Second

// endpointLimits limits the requests in flight to one endpoint by the endpoint's health: an endpoint that hangs or fails has one
// request in flight, so it takes one slot. Requests to an endpoint that throttles have an interval, which a throttled
// response extends by half and a success shortens by a sixth. The interval grows only if more than 31 % of the responses
// are throttled. Otherwise the rate would fall to the lowest for an endpoint that throttles some requests at any rate, such
// as one with a backend that is broken. An endpoint with a fixed rate gets about 1.5 times that rate.
type endpointLimits struct {
	start, max int

	mu       sync.Mutex
	url      string
	freed    *sync.Cond
	limit    int
	active   int
	interval time.Duration // 0 = the endpoint does not throttle
	next     time.Time     // when the next request may begin
	extended time.Time     // when the interval was extended
}

func newEndpointLimits(start, maximum int) *endpointLimits {
	w := &endpointLimits{start: start, max: maximum, limit: start}
	w.freed = sync.NewCond(&w.mu)
	return w
}

// use resets the limits if the URL has changed. No request may be in flight.
func (l *endpointLimits) use(url string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if url != l.url {
		l.url, l.limit, l.interval, l.next, l.extended = url, l.start, 0, time.Time{}, time.Time{}
	}
}

// enter waits until one more request may be in flight. It returns false if ctx has ended.
func (l *endpointLimits) enter(ctx context.Context) bool {
	defer context.AfterFunc(ctx, func() {
		l.mu.Lock() // the waiter must not miss the broadcast between its check and its wait
		defer l.mu.Unlock()
		l.freed.Broadcast()
	})()
	l.mu.Lock()
	defer l.mu.Unlock()
	for ctx.Err() == nil && l.active >= l.limit {
		l.freed.Wait()
	}
	if ctx.Err() != nil {
		return false
	}
	l.active++
	return true
}

func (l *endpointLimits) leave() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.active--
	l.freed.Broadcast()
}

// pace waits until the next request may begin, ctx has ended, or stopped is true. A caller that is stopped does not use the
// interval: otherwise the next round would wait for the intervals of all its requests.
func (l *endpointLimits) pace(ctx context.Context, stopped func() bool) {
	for !stopped() {
		l.mu.Lock()
		now := time.Now()
		wait := l.next.Sub(now)
		if wait <= 0 {
			l.next = now.Add(l.interval)
			l.mu.Unlock()
			return
		}
		l.mu.Unlock()
		if service.Pause(ctx, wait) != nil {
			return
		}
	}
}

// adapt adjusts the limit and the interval after an attempt. slowest means that the endpoint throttles at the lowest rate.
func (l *endpointLimits) adapt(o Outcome, start time.Time) (slowest bool) {
	if o.Took > slowAfter || !o.Delivered && !o.Refused() && !o.Throttled() {
		l.limitToOne()
		return o.Throttled() // and the interval would be longer
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if o.Throttled() {
		return l.extend(o, start)
	}
	if !start.Before(l.extended) {
		if l.interval -= l.interval / 6; l.interval < minInterval {
			l.interval = 0
		}
	}
	l.limit = min(l.limit+1, l.max)
	l.freed.Broadcast()
	return false
}

// extend extends the interval. The first interval is twice that of the requests until then.
func (l *endpointLimits) extend(o Outcome, start time.Time) (slowest bool) {
	if start.Before(l.extended) {
		return false // it was in flight already
	}
	slowest = l.interval >= maxInterval
	l.interval = max(l.interval+l.interval/2, minInterval)
	if l.extended.IsZero() {
		l.interval = max(l.interval, 2*o.Took/time.Duration(l.limit))
	}
	l.interval = min(l.interval, maxInterval)
	l.extended = time.Now()
	l.next = l.extended.Add(l.interval)
	return slowest
}

// limitToOne limits the endpoint to one request in flight.
func (l *endpointLimits) limitToOne() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.limit = 1
}

// unhealthy reports whether the last attempt failed or was slow.
func (l *endpointLimits) unhealthy() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.limit == 1
}

// keepInterval is how long the interval of an endpoint without deliveries is kept. It is longer than a pause, after which
// requests begin at the lowest rate.
const keepInterval = webhookstore.MaxThrottlePause + time.Minute

// limitsOf returns the limits of an endpoint that is about to be served.
func (s *Service) limitsOf(endpoint uuid.UUID) *endpointLimits {
	s.mu.Lock()
	defer s.mu.Unlock()
	maps.DeleteFunc(s.throttling, func(_ uuid.UUID, w *endpointLimits) bool { return !w.throttles() })
	if kept := s.throttling[endpoint]; kept != nil {
		return kept
	}
	return newEndpointLimits(startLimit, maxConcurrent)
}

// saveLimits keeps the limits of an endpoint that throttles: otherwise each small group of deliveries would exceed its rate
// again.
func (s *Service) saveLimits(endpoint uuid.UUID, w *endpointLimits) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if w.throttles() {
		s.throttling[endpoint] = w
	}
}

// throttles reports whether requests have an interval, and one of them was made recently.
func (l *endpointLimits) throttles() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.interval > 0 && time.Since(l.next) < keepInterval
}
