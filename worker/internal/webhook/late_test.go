package webhook_test

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	webhookstore "email-gateway/shared/store/webhook"
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

func (s *lateStore) Behind(ctx context.Context, probeAfter time.Duration, limit int) ([]webhookstore.Work, error) {
	added := s.added.Load()
	work, err := s.Store.Behind(ctx, probeAfter, limit)
	if added {
		s.closed.Do(func() { close(s.listed) })
	}
	return work, err
}

func (s *lateStore) Release(ctx context.Context, l webhookstore.Lease) error {
	s.once.Do(func() {
		s.add()
		s.added.Store(true)
		<-s.listed
	})
	return s.Store.Release(ctx, l)
}

// An event that comes when an endpoint was read for the last time, but is still leased, is delivered in the next round and
// not after relistInterval.
func TestService_EventBeforeRelease(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	company := w.Company(t)
	r := w.endpoint(t, company)
	store := &lateStore{Store: w.Sending, listed: make(chan struct{}), add: func() {
		w.emit(t, company, 1, 1)
		w.assign(t)
	}}
	w.emit(t, company, 1, 1)
	w.assign(t)
	s := w.service(func(p *webhook.Params) { p.Store = store })
	s.SetRelist(time.Hour)
	if err := s.Start(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Stop(t.Context()) })
	<-store.listed
	waittest.Until(t, "both events", func() bool { return len(r.messages()) == 2 })
}
