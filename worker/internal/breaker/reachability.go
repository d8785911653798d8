package breaker

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
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
// fail like in an outage, its result shows if the email or the provider is the cause. Before a probe
// it shows if another server still answers in the provider's place.
type reachability struct {
	reach func(context.Context) error // nil = there is no such call
	// garbled: the last response to an email was unreadable. reason is the code that opened the breaker, as of the last second.
	garbled atomic.Bool
	reason  atomic.Pointer[string]

	mu    sync.Mutex
	err   error
	until time.Time // until when the result is reused
}

// readable records whether a response to an email could be read.
func (r *reachability) readable(yes bool) { r.garbled.Store(!yes) }

// openedBy records why the breaker is open; nil if it is closed.
func (r *reachability) openedBy(reason *string) { r.reason.Store(reason) }

// outage reports whether the call has no answer. An unreadable one is not an outage: an endpoint in front of the provider may
// not support this call.
func (r *reachability) outage() bool {
	err := r.check()
	return err != nil && unreadable(err) == nil
}

// unreadable returns the failure of a call that another server has answered, or nil.
func unreadable(err error) *provider.Failure {
	if f := (*provider.Failure)(nil); errors.As(err, &f) && f.Outcome == provider.Unreadable {
		return f
	}
	return nil
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

// Withhold is called before each call. It returns a failure if the call must not be made: an unreadable response has opened the
// breaker, or was the last one here; the email is a probe, or the first after a while of this suspended process; and another
// server still answers in the provider's place. An unreadable response would fail the email, because the provider usually has
// accepted it.
func (b *Breaker) Withhold(c Call) *provider.Failure {
	if !c.Pass.Probe && b.suspension.Suspended() == nil {
		return nil
	}
	garbled, reason := b.reachability.garbled.Load(), b.reachability.reason.Load()
	if !garbled && reason == nil {
		return nil
	}
	f := unreadable(b.reachability.check())
	if f == nil || !garbled && f.Code != *reason {
		return nil
	}
	withheld := *f
	withheld.Outcome, withheld.Withheld = provider.Park, true
	return &withheld
}
