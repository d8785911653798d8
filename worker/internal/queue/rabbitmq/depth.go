package rabbitmq

import (
	"sync"
	"time"
)

// depthLife is how long a measured depth is reused. A round of the dispatcher takes some
// milliseconds; ten measurements per second have no noticeable cost.
const depthLife = 100 * time.Millisecond

// depth estimates the number of ready messages on a queue.
type depth struct {
	mu        sync.Mutex
	published int // total published by this process
	count     int // last measurement
	base      int // published at that time
	at        time.Time
}

func (d *depth) added() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.published++
}

// known returns the last measurement plus the messages published since, and whether the measurement is fresh.
func (d *depth) known() (n int, fresh bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.count + d.published - d.base, time.Since(d.at) < depthLife
}

// mark returns the number of published messages before a measurement: messages published during it may be counted twice, but
// are not missed.
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
