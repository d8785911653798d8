package transfer

import (
	"sync"
	"time"
)

// Rate measures the bytes of a transfer in the last half to whole window of waiting time.
type Rate struct {
	mu    sync.Mutex
	since time.Time // start of the current wait; zero = not waiting
	total amount
	// The totals at the last two half-window boundaries. The measurement starts at the older one.
	half, begin amount
}

// amount is how many bytes were transferred and how long the gateway waited for them.
type amount struct {
	bytes  int64
	waited time.Duration
}

// Wait records the start of a wait.
func (r *Rate) Wait(now time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.since = now
}

// Moved records the end of a wait of the given duration, with n bytes.
func (r *Rate) Moved(n int64, took, window time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.since = time.Time{}
	r.total.bytes += n
	r.total.waited += took
	r.move(r.total, window)
}

// Waited returns the time of all waits that have ended.
func (r *Rate) Waited() time.Duration {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.total.waited
}

// Measure returns the bytes since the start of the window and the time waited for them, including the current wait.
func (r *Rate) Measure(now time.Time, window time.Duration) (bytes int64, waited time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	total := r.total
	if !r.since.IsZero() {
		total.waited += now.Sub(r.since)
	}
	r.move(total, window)
	return total.bytes - r.begin.bytes, total.waited - r.begin.waited
}

// move advances the window once half of it has passed.
func (r *Rate) move(total amount, window time.Duration) {
	if total.waited-r.half.waited >= window/2 {
		r.begin, r.half = r.half, total
	}
}
