package attachment

import (
	"sync"
	"time"

	"github.com/google/uuid"
)

const (
	// minDelay is the shortest delay of a postponed email.
	minDelay = time.Second
	// maxDelay bounds how long an email waits after the emails in front of it have been sent. With a limit of one minute, 50,000
	// waiting emails would be tried about 800 times per second without success.
	maxDelay = 10 * time.Minute
	// startInterval is the time per email that is assumed before a lane's first email has been sent.
	startInterval = 100 * time.Millisecond
	// idleTime is how long a lane's pace is kept after its last email.
	idleTime = 10 * time.Second
)

// pacing spreads the postponed emails of each lane over time: each is due one interval after the one before, and the
// interval follows the time that the lane's emails take, shared by those in flight together. With a fixed delay, n
// waiting emails would come back n times for each that is sent.
type pacing struct {
	mu    sync.Mutex
	lanes map[lane]*pace
}

// lane is a lane of a company: its urgent emails do not wait behind its mailing.
type lane struct {
	company uuid.UUID
	name    string
}

// pace is that of one lane.
type pace struct {
	interval time.Duration // moving average of the time per email
	running  int           // emails in flight
	sent     time.Time     // the last one
	due      time.Time     // of the last postponed email
}

func newPacing() *pacing { return &pacing{lanes: map[lane]*pace{}} }

// delay returns when a postponed email is due.
func (p *pacing) delay(of lane, now time.Time) time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	c := p.paceOf(of, now)
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
func (p *pacing) start(of lane, now time.Time) (done func(time.Time)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	c := p.paceOf(of, now)
	c.running++
	return func(end time.Time) {
		p.mu.Lock()
		defer p.mu.Unlock()
		c.interval = (3*c.interval + end.Sub(now)/time.Duration(c.running)) / 4
		c.running--
		c.sent = end
	}
}

// paceOf returns a lane's pace, and forgets those of lanes without emails. p.mu must be held.
func (p *pacing) paceOf(of lane, now time.Time) *pace {
	if c := p.lanes[of]; c != nil {
		return c
	}
	for id, c := range p.lanes {
		if c.running == 0 && now.Sub(c.sent) > idleTime && now.After(c.due) {
			delete(p.lanes, id)
		}
	}
	c := &pace{interval: startInterval, sent: now}
	p.lanes[of] = c
	return c
}
