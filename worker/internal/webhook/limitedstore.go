package webhook

import (
	"context"
	"time"

	"github.com/google/uuid"

	webhookstore "email-gateway/shared/store/webhook"
)

// maxStatements and maxStatementsPerCompany limit the concurrent statements of the served endpoints, in total and per
// company. Of the worker's four connections for webhooks they leave one to the loop and to leases.
const maxStatements, maxStatementsPerCompany = 3, 2

// limitedStore runs the statements of one company's endpoints, each in a slot. Companies take turns, so one with many busy
// endpoints does not occupy all connections.
type limitedStore struct {
	Store
	slots   *slots
	company uuid.UUID
}

// enter waits for a slot. If ctx has ended, it returns at once, without a slot.
func (s limitedStore) enter(ctx context.Context) (leave func()) {
	slot, err := s.slots.enter(ctx, s.company, false)
	if err != nil {
		return func() {}
	}
	return func() { s.slots.leave(slot) }
}

func (s limitedStore) Load(ctx context.Context, l webhookstore.Lease, probeAfter time.Duration) (webhookstore.Round, error) {
	defer s.enter(ctx)()
	return s.Store.Load(ctx, l, probeAfter)
}

func (s limitedStore) Read(ctx context.Context, company uuid.UUID, after webhookstore.Cursor, filter []string, limit int) (webhookstore.EventPage, error) {
	defer s.enter(ctx)()
	return s.Store.Read(ctx, company, after, filter, limit)
}

func (s limitedStore) FindEvents(ctx context.Context, company uuid.UUID, ids []string) (map[string]webhookstore.Event, error) {
	defer s.enter(ctx)()
	return s.Store.FindEvents(ctx, company, ids)
}

func (s limitedStore) ReplayFailed(ctx context.Context, l webhookstore.Lease, r webhookstore.Replay, limit int) (int, error) {
	defer s.enter(ctx)()
	return s.Store.ReplayFailed(ctx, l, r, limit)
}

// Record also writes after ctx has ended, for a limited time: otherwise the events that were sent would be sent again.
func (s limitedStore) Record(ctx context.Context, l webhookstore.Lease, r webhookstore.Result, disableAfter time.Duration) (webhookstore.Recorded, error) {
	defer s.enter(ctx)()
	last, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopTime)
	defer cancel()
	return s.Store.Record(last, l, r, disableAfter)
}
