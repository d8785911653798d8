package breaker

import (
	"sync"
	"time"
)

const (
	// refusalAge is how long a refusal is remembered. After it the sender may have been fixed.
	refusalAge = time.Hour
	// maxRefusals bounds the memory. When it is reached all are forgotten: at worst, the next refusal of each opens
	// the breaker once more.
	maxRefusals = 4096
)

// refusals decides whether an ambiguous refusal concerns the account or only the email's sender. SES answers 403 with the
// same text if the credentials may not send at all and if they may not send as one identity, and a proxy may refuse one body.
// The evidence is what other calls of this process got: if one that began after the first refusal of a sender or email was
// accepted, the account works. Each process needs its own evidence, so each may open the breaker once per sender.
type refusals struct {
	mu       sync.Mutex
	first    map[string]time.Time // by sender domain and by email id, since its last accepted call
	accepted time.Time            // the latest start of an accepted call
}

// concernAccount records a refusal and reports whether the account may be the cause.
func (r *refusals) concernAccount(c Call, now time.Time) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	account := true
	for _, key := range c.refusalKeys() {
		first, known := r.first[key]
		switch {
		case known && now.Sub(first) < refusalAge:
			account = account && !r.accepted.After(first)
			continue
		case r.first == nil || len(r.first) >= maxRefusals:
			r.first = make(map[string]time.Time)
		}
		r.first[key] = now
	}
	return account
}

// answered records an accepted call.
func (r *refusals) answered(c Call) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if c.Began.After(r.accepted) {
		r.accepted = c.Began
	}
	for _, key := range c.refusalKeys() {
		delete(r.first, key)
	}
}

func (c Call) refusalKeys() [2]string { return [2]string{c.Sender, c.Email.String()} }
