package webhook

import (
	"context"
	"time"

	"github.com/google/uuid"

	hooks "email-gateway/shared/store/webhook"
)

// mostStatements and mostStatementsPerCompany limit the concurrent statements of the served endpoints, in total and per
// company. Of the worker's four connections for webhooks they leave one to the loop and to leases.
const mostStatements, mostStatementsPerCompany = 3, 2

// turns runs the statements of one company's endpoints. Companies take turns, so one with many busy endpoints does not
// occupy all connections.
type turns struct {
	Store
	slots   *slots
	company uuid.UUID
}

// enter waits for a turn. If ctx has ended, it returns at once, without a slot.
func (t turns) enter(ctx context.Context) (leave func()) {
	slot, err := t.slots.enter(ctx, t.company, false)
	if err != nil {
		return func() {}
	}
	return func() { t.slots.leave(slot) }
}

func (t turns) Load(ctx context.Context, l hooks.Lease, probeAfter time.Duration) (hooks.Round, error) {
	defer t.enter(ctx)()
	return t.Store.Load(ctx, l, probeAfter)
}

func (t turns) Read(ctx context.Context, company uuid.UUID, after hooks.Cursor, filter []string, limit int) (hooks.EventPage, error) {
	defer t.enter(ctx)()
	return t.Store.Read(ctx, company, after, filter, limit)
}

func (t turns) FindEvents(ctx context.Context, company uuid.UUID, ids []string) (map[string]hooks.Event, error) {
	defer t.enter(ctx)()
	return t.Store.FindEvents(ctx, company, ids)
}

func (t turns) ReplayFailed(ctx context.Context, l hooks.Lease, r hooks.Replay, limit int) (int, error) {
	defer t.enter(ctx)()
	return t.Store.ReplayFailed(ctx, l, r, limit)
}

// Record also writes after ctx has ended, for a limited time: otherwise the events that were sent would be sent again.
func (t turns) Record(ctx context.Context, l hooks.Lease, r hooks.Result, disableAfter time.Duration) (hooks.Recorded, error) {
	defer t.enter(ctx)()
	last, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopTime)
	defer cancel()
	return t.Store.Record(last, l, r, disableAfter)
}
