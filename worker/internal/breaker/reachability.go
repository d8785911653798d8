package breaker

import (
	"context"
	"errors"
	"sync"
	"time"

	"email-gateway/worker/internal/provider"
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
// fail like in an outage, its result tells whether the email or the provider is the cause. Before a probe
// it tells whether another server answers in the provider's place.
type reachability struct {
	reach func(context.Context) error // nil = there is no such call

	mu    sync.Mutex
	err   error
	until time.Time // until when the result is reused
}

// check returns the error of this call.
func (r *reachability) check() error {
	if r.reach == nil {
		return nil
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if time.Now().Before(r.until) {
		return r.err
	}
	ctx, cancel := context.WithTimeout(context.Background(), reachTime)
	defer cancel()
	r.err = r.reach(ctx)
	r.until = time.Now().Add(reachAge)
	return r.err
}

// Withhold is called before each call. It returns a failure if the call must not be made: the email is a probe, or the first after a
// while of this suspended process, and another server still answers in the provider's place. An unreadable response would
// fail the email, because the provider usually has accepted it.
func (b *Breaker) Withhold(c Call) *provider.Failure {
	if !c.Pass.Probe && b.suspension.Suspended() == nil {
		return nil
	}
	var f *provider.Failure
	if !errors.As(b.reachability.check(), &f) || f.Outcome != provider.Unreadable {
		return nil
	}
	withheld := *f
	withheld.Outcome = provider.Park
	return &withheld
}
