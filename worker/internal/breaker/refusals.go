package breaker

import (
	"sync"
	"time"

	"email-gateway/shared/email"
)

// refusalAge is how long a refusal is remembered. After it the sender may have been fixed.
const refusalAge = time.Hour

// maxRefusals bounds the memory. When it is reached all are forgotten: at worst, the next refusal of each sender opens the breaker
// once more.
const maxRefusals = 4096

// refusals decides whether an ambiguous refusal concerns the account or only the email or its sender. SES answers 403 with the
// same text if the credentials may not send at all and if they may not send as one identity, and a proxy may refuse one body.
// The evidence is the results of other calls of this process: the account works if a call was accepted that began after this
// one, or after the first refusal of the same sender or email. Each process needs its own evidence, so each may open the breaker
// once per sender.
type refusals struct {
	mu       sync.Mutex
	first    map[string]time.Time // first refusals since the last accepted call, see refusalKeys
	accepted time.Time            // the latest start of an accepted call
}

// concernAccount records a refusal and reports whether the account may be the cause.
func (r *refusals) concernAccount(c Call, now time.Time) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.accepted.After(c.Began) {
		return false
	}
	keys := c.refusalKeys()
	for _, key := range keys {
		if first, known := r.first[key]; known && now.Sub(first) < refusalAge && r.accepted.After(first) {
			return false
		}
	}
	if r.first == nil || len(r.first)+len(keys) > maxRefusals {
		r.first = make(map[string]time.Time)
	}
	for _, key := range keys {
		if first, known := r.first[key]; !known || now.Sub(first) >= refusalAge {
			r.first[key] = now
		}
	}
	return true
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

// refusalKeys are the sender's address and domain, either of which may be an identity of the account, and the email.
func (c Call) refusalKeys() [3]string {
	return [3]string{c.Sender, email.DomainOf(c.Sender), c.Email.String()}
}
