package rotation

import (
	"context"
	"fmt"

	"github.com/google/uuid"

	"email-gateway/shared/keyring"
	"email-gateway/shared/store/webhook"
)

// webhookSecrets is the name of secrets of webhook endpoints in a KeyUsage.
const webhookSecrets = "webhookSecrets"

// scanWebhooks counts the secrets of webhook endpoints by key, and re-encrypts those of older keys if
// change is set.
func (r *Rotation) scanWebhooks(ctx context.Context, change bool, count func(key string), damaged *undecryptable) (changed int, err error) {
	for after := uuid.Nil; ; {
		page, err := r.Webhooks.Secrets(ctx, after, batch)
		if err != nil {
			return changed, err
		}
		for _, was := range page {
			now, n := was, 0
			for _, secret := range []*[]byte{&now.Secret, &now.OldSecret} {
				fresh, err := r.reencryptSecret(was, *secret, change, count)
				if err != nil {
					if err = fmt.Errorf("%s %s: %w", webhookSecrets, was.ID, err); damaged.skip(err) {
						continue
					}
					return changed, err
				}
				if fresh != nil {
					*secret = fresh
					n++
				}
			}
			if n > 0 {
				if err := r.Webhooks.Reencrypt(ctx, was, now); err != nil {
					return changed, err
				}
				changed += n
			}
			after = was.ID
		}
		if len(page) < batch {
			return changed, nil
		}
	}
}

// reencryptSecret returns nil if the secret stays as it is.
func (r *Rotation) reencryptSecret(of webhook.Secrets, secret []byte, change bool, count func(key string)) ([]byte, error) {
	if secret == nil {
		return nil, nil
	}
	key, err := keyring.KeyOf(secret)
	if err != nil {
		return nil, err
	}
	count(key)
	if !change || !r.old(key) {
		return nil, nil
	}
	bare, err := r.Ring.Open(of.CompanyID, secret)
	if err != nil {
		return nil, err
	}
	return r.Ring.Seal(of.CompanyID, bare)
}
