package webhook

import (
	"context"
	"sync"
	"time"

	"github.com/google/uuid"

	"email-gateway/shared/service"
	"email-gateway/shared/standardwebhook"
	webhookstore "email-gateway/shared/store/webhook"
)

// item is one event to deliver in a round.
type item struct {
	event Event
	row   *webhookstore.Delivery // nil = none yet
}

// result is the result of an item.
type result struct {
	state   state
	outcome Outcome
}

type state int

const (
	untouched state = iota // not attempted, or interrupted: repeated later
	delivered
	failed
	behind // an earlier event of the same email is not delivered
)

// batch attempts the items of a round. Items of one email are attempted one after the other, in order; after a failure
// the rest of the email is not attempted. Emails are attempted concurrently.
type batch struct {
	*server
	ctx      context.Context //nolint:containedctx // of one round
	endpoint webhookstore.Endpoint
	secrets  []standardwebhook.Secret
	items    []item
	results  []result

	mu      sync.Mutex
	chains  map[uuid.UUID]*chain
	blocked map[uuid.UUID]bool // emails with an open delivery
	// Failed attempts since the last success, including those of earlier rounds.
	failures  int
	stopped   bool
	throttled bool
	startedAt time.Time           // the first attempt
	tally     webhookstore.Result // URL, Succeeded, Refused, Failures, Error, Gone, RetryAfter and Throttled
}

// chain is an email's items that are being attempted.
type chain struct{ queue []int }

func (s *server) newBatch(ctx context.Context, r webhookstore.Round, secrets []standardwebhook.Secret, items []item) *batch {
	b := &batch{
		server: s, ctx: ctx, endpoint: r.Endpoint, secrets: secrets, items: items, results: make([]result, len(items)),
		chains: map[uuid.UUID]*chain{}, blocked: map[uuid.UUID]bool{}, failures: r.Failures,
		tally: webhookstore.Result{URL: r.URL},
	}
	return b
}

// run attempts the items. If the endpoint throttles and accepts nothing, a pause follows.
func (b *batch) run() {
	b.attemptAll()
	if b.throttled && !b.tally.Succeeded {
		b.pause()
	}
}

// attemptAll attempts the items in order and returns when all attempts have ended. It stops early if the endpoint is
// down or requests a pause, the lease is about to expire, the turn is over, or the service stops. Otherwise a slow
// endpoint would keep its place for minutes, and changes of the endpoint and a suspension of its company would have no
// effect until then.
func (b *batch) attemptAll() {
	var chains sync.WaitGroup
	for i, it := range b.items {
		email := uuid.New() // an event without an email has its own chain
		if it.event.EmailID != uuid.Nil {
			email = it.event.EmailID
		}
		b.mu.Lock()
		running := b.chains[email]
		switch {
		case b.stopped:
			b.mu.Unlock()
			chains.Wait()
			return
		case b.blocked[email]:
			b.results[i].state = behind
			b.mu.Unlock()
			continue
		case running != nil:
			running.queue = append(running.queue, i)
			b.mu.Unlock()
			continue
		}
		b.mu.Unlock()
		if !b.limits.enter(b.ctx) {
			break
		}
		b.limits.pace(b.ctx, b.isStopped)
		b.mu.Lock()
		if b.stopped { // stopped during the wait
			b.mu.Unlock()
			b.limits.leave()
			break
		}
		c := &chain{queue: []int{i}}
		b.chains[email] = c
		b.mu.Unlock()
		chains.Go(func() {
			defer b.limits.leave()
			_, err := service.Recovered(func() (struct{}, error) { b.follow(email, c); return struct{}{}, nil })
			if err != nil {
				b.fail(err)
			}
		})
	}
	chains.Wait()
}

// fail stops the batch. The round returns the error after it has recorded the other attempts.
func (b *batch) fail(err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.stopped, b.fault = true, err
}

// follow attempts the items of one email.
func (b *batch) follow(email uuid.UUID, c *chain) {
	for first := true; ; first = false {
		b.mu.Lock()
		if len(c.queue) == 0 || b.stopped {
			delete(b.chains, email)
			b.mu.Unlock()
			return
		}
		i := c.queue[0]
		c.queue = c.queue[1:]
		blocked := b.blocked[email]
		b.mu.Unlock()
		if blocked {
			b.results[i].state = behind
			continue
		}
		if !first {
			b.limits.pace(b.ctx, b.isStopped)
		}
		if !b.attempt(i, email) {
			b.mu.Lock()
			delete(b.chains, email)
			b.stopped = true
			b.mu.Unlock()
			return
		}
	}
}

// isStopped reports whether the batch or the service was stopped.
func (b *batch) isStopped() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.stopped || b.stopping.Load()
}

// isOver reports whether the batch or the service was stopped, or the batch has had attempts for longer than a turn. The
// first attempt of a turn is always made.
func (b *batch) isOver() bool {
	if b.isStopped() {
		return true
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.startedAt.IsZero() {
		b.startedAt = time.Now()
		return false
	}
	return time.Since(b.startedAt) > b.turnTime
}

// attempt makes one attempt. It returns false if the attempt was not made or has no outcome.
func (b *batch) attempt(i int, email uuid.UUID) bool {
	slot, err := b.slots.enter(b.ctx, b.endpoint.CompanyID, b.limits.unhealthy())
	if err != nil {
		return false
	}
	defer b.slots.leave(slot)
	if !b.held.mayAttempt() || b.isOver() {
		return false
	}
	defer time.AfterFunc(slowAfter, func() {
		b.limits.limitToOne() // further requests to the endpoint count as unhealthy
		b.slots.markSlow(slot)
	}).Stop()
	start := time.Now()
	o, err := b.p.Sender.Send(b.ctx, Message{Company: b.endpoint.CompanyID, URL: b.endpoint.URL, ID: b.items[i].event.ID, Body: body(b.items[i].event), Secrets: b.secrets})
	if err != nil {
		return false
	}
	b.p.Metrics.attempt(o)
	slowest := b.limits.adapt(o, start)
	b.mu.Lock()
	defer b.mu.Unlock()
	b.results[i].outcome = o
	if o.Delivered {
		b.results[i].state = delivered
		b.failures, b.tally.Succeeded, b.tally.Failures = 0, true, 0
		return true
	}
	b.results[i].state = failed
	b.blocked[email] = true
	if row := b.items[i].row; row != nil && row.IsTest() {
		return true // a test does not count for the endpoint's health
	}
	b.tally.Error = o.Code
	b.tally.RetryAfter = max(b.tally.RetryAfter, o.RetryAfter)
	if o.Throttled() {
		b.throttle(o, slowest)
		return true
	}
	if o.Refused() { // the endpoint is not down
		b.failures, b.tally.Refused, b.tally.Failures = 0, true, 0
	}
	b.failures++
	b.tally.Failures++
	b.tally.Gone = b.tally.Gone || o.Gone()
	if b.failures >= webhookstore.DownFailures || o.Gone() || o.RetryAfter > 0 {
		b.stopped = true
	}
	return true
}

// throttle handles a throttled response. A lower rate suffices unless the endpoint requests a pause, or accepts nothing
// at the lowest rate or since an earlier round.
func (b *batch) throttle(o Outcome, slowest bool) {
	b.throttled = true
	if o.RetryAfter > 0 || slowest || b.failures > 0 {
		b.stopped = true
		b.pause()
	}
}

// pause makes the round end with a pause of the endpoint. All throttled responses of a round count as one failure.
func (b *batch) pause() {
	if !b.tally.Throttled {
		b.tally.Throttled = true
		b.failures++
		b.tally.Failures++
	}
}
