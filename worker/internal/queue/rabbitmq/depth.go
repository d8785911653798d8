package rabbitmq

import (
	"sync"
	"time"
)

// depthLife is how long a queue's measured depth is good for. A round of the dispatcher
// takes some milliseconds; ten looks per second cost neither side anything.
const depthLife = 100 * time.Millisecond

// depth is what is known about how much stands on a queue.
type depth struct {
	mu        sync.Mutex
	published int // ever, by us
	count     int // as measured
	base      int // published when it was measured
	at        time.Time
}

func (d *depth) added() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.published++
}

// known is the last measure plus what was published since, while it is fresh.
func (d *depth) known() (n int, fresh bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.count + d.published - d.base, time.Since(d.at) < depthLife
}

// mark is taken before a measure: what is published while it is under way may be
// counted twice, but not missed.
func (d *depth) mark() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.published
}

func (d *depth) measured(count, before int) int {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.count, d.base, d.at = count, before, time.Now()
	return d.count + d.published - d.base
}
