package pipeline

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/google/uuid"

	"email-gateway/shared/email"
	"email-gateway/shared/store/outbox"
)

// PendingResults stores results that Postgres has not confirmed where a dispatcher finds them. Without it a dispatcher
// would end the attempt with an unknown outcome after its lease, although this worker knows the outcome.
type PendingResults interface {
	Store(ctx context.Context, t outbox.Transition) error
	// Remove reports whether a dispatcher has recorded the result.
	Remove(ctx context.Context, token uuid.UUID) (byDispatcher bool, err error)
}

const (
	// storeAfter is how long Postgres may take to record a result before it is stored. The call ends a second before the lease at
	// the latest, and the rescuer comes 5 s after the lease, so that 3 s remain for Redis.
	storeAfter = 3 * time.Second
	// storeEvery is the pause between two writes, because Redis may lose the result.
	storeEvery = 5 * time.Second
)

// pendingResult stores a result in Redis if Postgres has not recorded it within storeAfter, and again every storeEvery. A nil
// *pendingResult does nothing.
type pendingResult struct {
	log     *slog.Logger
	results PendingResults
	t       outbox.Transition
	timer   *time.Timer

	mu     sync.Mutex
	ended  bool
	tried  bool // Redis may have it
	stored bool // Redis has had it
	failed bool // the last write to Redis
}

// startPending begins to wait until end is called. An unknown outcome is not stored: a dispatcher finds the same.
func startPending(results PendingResults, log *slog.Logger, t outbox.Transition) *pendingResult {
	if results == nil || t.Status == email.OutcomeUnknown {
		return nil
	}
	p := &pendingResult{log: log, results: results, t: t}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.timer = time.AfterFunc(storeAfter, p.store)
	return p
}

func (p *pendingResult) store() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.ended {
		return
	}
	err := p.results.Store(context.Background(), late(p.t))
	switch {
	case err != nil && !p.failed:
		p.log.Error("cannot keep the attempt's result in Redis until Postgres records it", "error", err)
	case err == nil && !p.stored:
		p.log.Warn("cannot record the attempt's result in Postgres; stored it in Redis for the dispatchers")
	}
	p.tried, p.stored, p.failed = true, p.stored || err == nil, err != nil
	p.timer.Reset(storeEvery)
}

// end stops storing the result, and reports whether a dispatcher may have found it.
func (p *pendingResult) end() (tried bool) {
	if p == nil {
		return false
	}
	p.timer.Stop()
	p.mu.Lock()
	defer p.mu.Unlock()
	p.ended = true
	return p.tried
}

// remove removes a result that Postgres has, and reports whether a dispatcher has recorded it.
func (p *pendingResult) remove() (recorded bool) {
	recorded, err := p.results.Remove(context.Background(), p.t.Token)
	if err != nil {
		p.log.Debug("the attempt's result stays in Redis until it expires", "error", err)
		return false
	}
	return recorded
}
