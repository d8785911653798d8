package gate

import (
	"context"
	"sync"
	"time"
)

const (
	// reachTime bounds the question: the email's result waits for the answer, and its lease
	// covers the provider call's 30 s and as much again.
	reachTime = 5 * time.Second
	// reachAge is how long an answer is used again: AWS answers about one such question per
	// second for the whole account.
	reachAge = 5 * time.Second
)

// reachability asks the provider something that sends no email. When one email alone meets an
// outage, the answer says whether the email or the provider is the cause.
type reachability struct {
	reach func(context.Context) error // nil = the provider cannot be asked

	mu     sync.Mutex
	failed bool
	until  time.Time // of the answer
}

// unreachable says that the provider does not answer this question either.
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
