package store

import (
	"email-gateway/shared/store/idempotency"
)

// Types of package idempotency.
type (
	IdempotencyKey = idempotency.Key
	StoredAnswer   = idempotency.StoredAnswer
	KeyUsedError   = idempotency.UsedError

	idempotencyKeys = idempotency.Store
)

// ErrInProgress is idempotency.ErrInProgress.
var ErrInProgress = idempotency.ErrInProgress
