package webhook

import (
	"email-gateway/shared/store/event"
	"email-gateway/shared/store/internal/pg"
)

// DeliveryStore is what the sender of the worker uses: it finds endpoints with work, leases them, reads their events and
// deliveries, and records the attempts. It is safe for concurrent use.
type DeliveryStore struct {
	db   *pg.DB
	feed *event.Store
}

// NewDeliveryStore makes a DeliveryStore that uses the connections of db.
func NewDeliveryStore(db *pg.DB) *DeliveryStore {
	return &DeliveryStore{db: db, feed: event.New(db)}
}
