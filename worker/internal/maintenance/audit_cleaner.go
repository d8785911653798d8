package maintenance

import (
	"context"

	"email-gateway/shared/store"
)

// AuditStore is what is asked of the database about what operators did. It alone says how
// long that is kept.
type AuditStore interface {
	CleanAudit(ctx context.Context, limit int) (int, error)
}

// auditRows cannot be locked by who only deletes them: two dispatchers find the same, and
// share them. So some, not all of a batch, means that there may be more.
func auditRows(audit AuditStore) kind {
	return kind{"audit rows", auditExpired, always(func(ctx context.Context) (store.Cleaned, error) {
		n, err := audit.CleanAudit(ctx, cleanBatch)
		return store.Cleaned{Count: n, More: n > 0}, err
	})}
}
