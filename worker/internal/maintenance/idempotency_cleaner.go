package maintenance

import "context"

// KeyStore is what is asked of the database about idempotency keys.
type KeyStore interface {
	CleanIdempotencyKeys(ctx context.Context, limit int) (int, error)
}

// idempotencyKeys say themselves when their time is over.
func idempotencyKeys(store KeyStore) kind {
	return kind{"idempotency keys", keyExpired, always(limited(store.CleanIdempotencyKeys))}
}
