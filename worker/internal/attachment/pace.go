package attachment

import (
	"sync"
	"time"

	"github.com/google/uuid"
)

const (
	// minDelay is the shortest delay of a postponed email.
	minDelay = time.Second
	// maxDelay bounds how long an email waits after the emails in front of it have gone.
	maxDelay = time.Minute
	// startInterval is the time per email that is assumed before a company's first email has been sent.
	startInterval = 100 * time.Millisecond
	// idleTime is how long a company's pace is kept after its last email.
	idleTime = 10 * time.Second
)

// pacing spreads the postponed emails of each company over time: each is due one interval after the one before, and the interval
// follows the time that the company's emails take, shared by those in flight together. With a fixed delay, n waiting emails would come back n times for each that is
// sent.
type pacing struct {
	mu        sync.Mutex
	companies map[uuid.UUID]*pace
}

// pace is that of one company.
type pace struct {
	interval time.Duration // moving average of the time per email
	running  int           // emails in flight
	sent     time.Time     // the last one
	due      time.Time     // of the last postponed email
}

func newPacing() *pacing { return &pacing{companies: map[uuid.UUID]*pace{}} }

// delay returns when a postponed email is due.
func (p *pacing) delay(company uuid.UUID, now time.Time) time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	c := p.of(company, now)
	earliest, latest := now.Add(minDelay), now.Add(maxDelay)
	switch next := c.due.Add(c.interval); {
	case next.Before(earliest):
		c.due = earliest
	case next.After(latest):
		// More emails wait than go within maxDelay: the next ones are spread over its second half again.
		c.due = now.Add(maxDelay / 2)
	default:
		c.due = next
	}
	return c.due.Sub(now)
}

// start records that an email is in flight, and done that it has gone. The time between two emails would not do: it contains
// the delays, so one slow email would keep the emails behind it apart for ever.
func (p *pacing) start(company uuid.UUID, now time.Time) (done func(time.Time)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	c := p.of(company, now)
	c.running++
	return func(end time.Time) {
		p.mu.Lock()
		defer p.mu.Unlock()
		c.interval = (3*c.interval + end.Sub(now)/time.Duration(c.running)) / 4
		c.running--
		c.sent = end
	}
}

// of returns a company's pace, and forgets those of companies without emails. p.mu must be held.
func (p *pacing) of(company uuid.UUID, now time.Time) *pace {
	if c := p.companies[company]; c != nil {
		return c
	}
	for id, c := range p.companies {
		if c.running == 0 && now.Sub(c.sent) > idleTime && now.After(c.due) {
			delete(p.companies, id)
		}
	}
	c := &pace{interval: startInterval, sent: now}
	p.companies[company] = c
	return c
}
