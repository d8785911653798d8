package webhook

import (
	"email-gateway/shared/store/event"
	"email-gateway/shared/store/internal/pg"
)

// SenderStore is what the sender of the worker uses: it finds endpoints with work, leases them, reads their events and
// deliveries, and records the attempts. It is safe for concurrent use.
type SenderStore struct {
	db   *pg.DB
	feed *event.Store
}

// NewSenderStore returns a SenderStore that uses the connections of db.
func NewSenderStore(db *pg.DB) *SenderStore {
	return &SenderStore{db: db, feed: event.New(db)}
}
