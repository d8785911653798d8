package webhook

import (
	"context"
	"net/http"
	"sync"
	"time"

	"github.com/google/uuid"
)

// SetTurns sets how many endpoints are served at the same time, and how long each while others may wait.
func (s *Service) SetTurns(limit int, each time.Duration) { s.maxServed, s.turnTime = limit, each }

// SetRelist sets how often endpoints with events are listed even if there is no new event.
func (s *Service) SetRelist(interval time.Duration) { s.relist = interval }

// SetFailureWait sets the first wait of an endpoint that could not be served.
func (s *Service) SetFailureWait(first time.Duration) { s.failures.first = first }

// Pace returns how long requests with the given interval wait, one after the other. stopped says which of them belong to
// a batch that was stopped.
func Pace(ctx context.Context, interval time.Duration, stopped ...bool) []time.Duration {
	w := newEndpointLimits(1, 1)
	w.interval = interval
	waits := make([]time.Duration, len(stopped))
	for i, s := range stopped {
		start := time.Now()
		w.pace(ctx, func() bool { return s })
		waits[i] = time.Since(start)
	}
	return waits
}

// Limit makes n requests, as a batch does, to an endpoint that answers with the next status, each after took.
func Limit(ctx context.Context, n int, took time.Duration, status func() int) {
	w := newEndpointLimits(startLimit, maxConcurrent)
	var requests sync.WaitGroup
	for range n {
		w.enter(ctx)
		w.pace(ctx, func() bool { return false })
		requests.Go(func() {
			defer w.leave()
			start := time.Now()
			<-time.After(took)
			code := status()
			w.adapt(Outcome{Delivered: code < 300, Status: code, Took: time.Since(start)}, start)
		})
	}
	requests.Wait()
}

// Throttles reports whether requests to the endpoint have an interval.
func (s *Service) Throttles(endpoint uuid.UUID) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	kept := s.throttling[endpoint]
	return kept != nil && kept.throttles()
}

// SetTransport replaces what makes the requests.
func (s *Sender) SetTransport(t http.RoundTripper) { s.client.Transport = t }
