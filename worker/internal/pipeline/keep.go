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

// Results keeps results that Postgres has not confirmed where a dispatcher finds them. Without it a dispatcher would end the
// attempt with an unknown outcome after its lease, although this worker knows the outcome.
type Results interface {
	Store(ctx context.Context, t outbox.Transition) error
	// Remove reports whether a dispatcher has recorded the result.
	Remove(ctx context.Context, token uuid.UUID) (byDispatcher bool, err error)
}

const (
	// keepAfter is how long Postgres may take to record a result before it is kept. The call ends a second before the lease at
	// the latest, and the rescuer comes 5 s after the lease, so that 3 s remain for Redis.
	keepAfter = 3 * time.Second
	// keepEvery is the pause between two writes, because Redis may lose the result.
	keepEvery = 5 * time.Second
)

// kept is a result that is kept once Postgres is late with it. A nil kept is never kept.
type kept struct {
	log     *slog.Logger
	results Results
	t       outbox.Transition
	timer   *time.Timer

	mu     sync.Mutex
	ended  bool
	tried  bool // Redis may have it
	stored bool // Redis has had it
	failed bool // the last write to Redis
}

// keep keeps a result from keepAfter on until end is called. An unknown outcome is not kept: a dispatcher finds the same.
func keep(results Results, log *slog.Logger, t outbox.Transition) *kept {
	if results == nil || t.Status == email.OutcomeUnknown {
		return nil
	}
	k := &kept{log: log, results: results, t: t}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.timer = time.AfterFunc(keepAfter, k.store)
	return k
}

func (k *kept) store() {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.ended {
		return
	}
	err := k.results.Store(context.Background(), late(k.t))
	switch {
	case err != nil && !k.failed:
		k.log.Error("cannot keep the attempt's result in Redis until Postgres records it", "error", err)
	case err == nil && !k.stored:
		k.log.Warn("cannot record the attempt's result in Postgres; stored it in Redis for the dispatchers")
	}
	k.tried, k.stored, k.failed = true, k.stored || err == nil, err != nil
	k.timer.Reset(keepEvery)
}

// end stops keeping the result, and reports whether a dispatcher may have found it.
func (k *kept) end() (tried bool) {
	if k == nil {
		return false
	}
	k.timer.Stop()
	k.mu.Lock()
	defer k.mu.Unlock()
	k.ended = true
	return k.tried
}

// remove removes a result that Postgres has, and reports whether a dispatcher has recorded it.
func (k *kept) remove() (recorded bool) {
	recorded, err := k.results.Remove(context.Background(), k.t.Token)
	if err != nil {
		k.log.Debug("the attempt's result stays in Redis until it expires", "error", err)
		return false
	}
	return recorded
}
