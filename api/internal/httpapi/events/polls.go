package events

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/google/uuid"

	"email-gateway/shared/service"
	"email-gateway/shared/store/event"
)

const (
	// pollInterval is how often waiting requests look for events: all of a process with one query.
	pollInterval = 250 * time.Millisecond
	// maxPolls limits the requests that wait in one process, maxPollsPerCompany those of one company.
	// Further ones are answered at once: the wait is a maximum.
	maxPolls, maxPollsPerCompany = 1024, 16
)

// Polls lets requests for events wait for the next one, without a database connection. It is
// started by the api's main function, and stops before the HTTP listener, which waits for requests.
type Polls struct {
	loop *service.Loop
	feed Feed

	mu      sync.Mutex
	stopped bool
	waiting map[uuid.UUID]map[*eventPoll]struct{}
	count   int
}

// eventPoll is one waiting request.
type eventPoll struct {
	after event.Cursor
	found chan struct{} // closed when the company has events behind after
}

// NewPolls returns Polls that are not running yet.
func NewPolls(log *slog.Logger, feed Feed) *Polls {
	p := &Polls{feed: feed, waiting: make(map[uuid.UUID]map[*eventPoll]struct{})}
	p.loop = service.NewLoop(service.LoopParams{Log: log, Interval: pollInterval, RunOnce: p.runOnce})
	return p
}

// Start begins to look for events.
func (p *Polls) Start(ctx context.Context, failed func(error)) error {
	return p.loop.Start(ctx, failed)
}

// Stop ends all waits, and those that begin later at once.
func (p *Polls) Stop(ctx context.Context) error {
	p.mu.Lock()
	p.stopped = true
	for _, polls := range p.waiting {
		for poll := range polls {
			p.end(polls, poll)
		}
	}
	p.mu.Unlock()
	return p.loop.Stop(ctx)
}

// wait returns true when the company has events behind after, and false when ctx ends, the process
// stops, or too many requests wait already. A nil *Polls never waits.
func (p *Polls) wait(ctx context.Context, company uuid.UUID, after event.Cursor) bool {
	if p == nil || ctx.Err() != nil {
		return false
	}
	poll := &eventPoll{after: after, found: make(chan struct{})}
	p.mu.Lock()
	polls := p.waiting[company]
	if p.stopped || p.count >= maxPolls || len(polls) >= maxPollsPerCompany {
		p.mu.Unlock()
		return false
	}
	if polls == nil {
		polls = make(map[*eventPoll]struct{})
		p.waiting[company] = polls
	}
	polls[poll] = struct{}{}
	p.count++
	p.mu.Unlock()

	select {
	case <-poll.found:
		p.mu.Lock()
		defer p.mu.Unlock()
		return !p.stopped
	case <-ctx.Done():
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if _, still := polls[poll]; still {
		p.end(polls, poll)
	}
	p.drop(company)
	return false
}

// runOnce ends the waits of companies that have new events.
func (p *Polls) runOnce(ctx context.Context) (more bool, err error) {
	after := p.oldest()
	if len(after) == 0 {
		return false, nil
	}
	found, err := p.feed.WithEvents(ctx, after)
	if err != nil {
		return false, err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, company := range found {
		polls := p.waiting[company]
		for poll := range polls {
			p.end(polls, poll)
		}
		p.drop(company)
	}
	return false, nil
}

// oldest returns the oldest cursor that a request of each company waits behind.
func (p *Polls) oldest() map[uuid.UUID]event.Cursor {
	p.mu.Lock()
	defer p.mu.Unlock()
	after := make(map[uuid.UUID]event.Cursor, len(p.waiting))
	for company, polls := range p.waiting {
		for poll := range polls {
			if known, ok := after[company]; !ok || poll.after.Position < known.Position {
				after[company] = poll.after
			}
		}
	}
	return after
}

// end ends one wait. p.mu is held.
func (p *Polls) end(polls map[*eventPoll]struct{}, poll *eventPoll) {
	delete(polls, poll)
	p.count--
	close(poll.found)
}

// drop removes a company without waiting requests. p.mu is held.
func (p *Polls) drop(company uuid.UUID) {
	if len(p.waiting[company]) == 0 {
		delete(p.waiting, company)
	}
}

// Waiting returns how many requests wait.
func (p *Polls) Waiting() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.count
}
