package breaker

import (
	"context"
	"slices"
	"sync"

	"email-gateway/shared/email"
)

// refusals has the keys of this process's last ambiguous refusal. What refusals say about the account is in Postgres, because all
// workers share it. An accepted email with one of these keys deletes it there: this process usually gets it, and the others
// need not ask Postgres after each accepted email.
type refusals struct {
	mu   sync.Mutex
	last []string
}

func (r *refusals) refused(keys []string) {
	if len(keys) == 0 {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.last = keys
}

// accepted returns the keys of the call that were refused before, once.
func (r *refusals) accepted(c Call) (refuted []string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.last == nil {
		return nil
	}
	keys := c.refusalKeys()
	ours := func(key string) bool { return slices.Contains(keys, key) }
	if !slices.ContainsFunc(r.last, ours) {
		return nil
	}
	r.last = slices.DeleteFunc(slices.Clone(r.last), ours)
	return keys
}

// forgetRefusals records that the provider accepts emails of a sender that it refused before.
func (b *Breaker) forgetRefusals(c Call) {
	keys := b.refusals.accepted(c)
	if keys == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), closeTime)
	defer cancel()
	if err := b.store.ForgetRefusals(ctx, keys); err != nil {
		b.log.Warn("cannot record that the provider accepts a sender again, its next refusal does not open the circuit breaker", "error", err)
	}
}

// refusalKeys are the sender's address and domain, either of which may be an identity of the account, and the email.
func (c Call) refusalKeys() []string {
	return []string{c.Sender, email.DomainOf(c.Sender), c.Email.String()}
}
