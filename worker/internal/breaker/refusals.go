package breaker

import (
	"context"
	"slices"
	"sync"

	"email-gateway/shared/email"
)

// refusals has the keys in provider_refusals, as of the last second, and those of this process's last opening. An accepted
// email with one of them deletes its keys in the table, because the provider does not refuse its sender.
type refusals struct {
	mu   sync.Mutex
	keys []string
}

func (r *refusals) set(keys []string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.keys = keys
}

func (r *refusals) add(keys []string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.keys = slices.Concat(r.keys, keys)
}

// accepted returns the keys of the call if one of them was refused, once.
func (r *refusals) accepted(c Call) (refuted []string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.keys) == 0 {
		return nil
	}
	keys := c.refusalKeys()
	ours := func(key string) bool { return slices.Contains(keys, key) }
	if !slices.ContainsFunc(r.keys, ours) {
		return nil
	}
	r.keys = slices.DeleteFunc(slices.Clone(r.keys), ours)
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
