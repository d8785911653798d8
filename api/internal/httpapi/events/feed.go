package events

import (
	"context"

	"github.com/google/uuid"

	"email-gateway/shared/store/event"
)

// Feed is the part of *event.Store that requests use.
type Feed interface {
	Read(ctx context.Context, company uuid.UUID, after event.Cursor, filter *event.Filter, limit int) (event.Page, error)
	WithEvents(ctx context.Context, after map[uuid.UUID]event.Cursor) ([]uuid.UUID, error)
}
