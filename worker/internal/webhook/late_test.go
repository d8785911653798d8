package webhook_test

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	hooks "email-gateway/shared/store/webhook"
	"email-gateway/shared/waittest"
	"email-gateway/worker/internal/webhook"
)

// lateStore adds something between the last read of an endpoint and the end of its lease, and lets a round list the endpoints
// before the lease ends.
type lateStore struct {
	webhook.Store
	add    func()
	once   sync.Once
	added  atomic.Bool
	listed chan struct{} // after added
	closed sync.Once
}

func (s *lateStore) Behind(ctx context.Context, probeAfter time.Duration, limit int) ([]hooks.Work, error) {
	added := s.added.Load()
	work, err := s.Store.Behind(ctx, probeAfter, limit)
	if added {
		s.closed.Do(func() { close(s.listed) })
	}
	return work, err
}

func (s *lateStore) Release(ctx context.Context, l hooks.Lease) error {
	s.once.Do(func() {
		s.add()
		s.added.Store(true)
		<-s.listed
	})
	return s.Store.Release(ctx, l)
}

// An event that comes when an endpoint was read for the last time, but is still leased, is delivered in the next round and
// not after relistInterval, 30 s.
func TestService_EventBeforeRelease(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	company := w.Company(t)
	r := w.endpoint(t, company)
	store := &lateStore{Store: w.Hooks, listed: make(chan struct{}), add: func() {
		w.emit(t, company, 1, 1)
		w.assign(t)
	}}
	w.emit(t, company, 1, 1)
	w.assign(t)
	w.start(t, func(p *webhook.Params) { p.Store = store })
	<-store.listed
	begun := time.Now()
	waittest.Until(t, "both events", func() bool { return len(r.messages()) == 2 })
	if took := time.Since(begun); took > 25*time.Second {
		t.Errorf("took %s", took)
	}
}
