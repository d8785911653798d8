package breaker

import (
	"context"
	"sync"
	"time"
)

const (
	// reachTime bounds the call: the result of the email waits for it, and the email's lease covers
	// the provider call's 30 s and as much again.
	reachTime = 5 * time.Second
	// reachAge is how long a result is reused: AWS allows about one such call per second for the
	// whole account.
	reachAge = 5 * time.Second
)

// reachability makes a call to the provider that sends no email. If the calls of a single email
// fail like in an outage, its result tells whether the email or the provider is the cause.
type reachability struct {
	reach func(context.Context) error // nil = there is no such call

	mu     sync.Mutex
	failed bool
	until  time.Time // until when the result is reused
}

// unreachable reports whether this call fails too.
func (r *reachability) unreachable() bool {
	if r.reach == nil {
		return false
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if time.Now().Before(r.until) {
		return r.failed
	}
	ctx, cancel := context.WithTimeout(context.Background(), reachTime)
	defer cancel()
	r.failed = r.reach(ctx) != nil
	r.until = time.Now().Add(reachAge)
	return r.failed
}
