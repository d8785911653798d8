package webhook_test

import (
	"context"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"

	webhookstore "email-gateway/shared/store/webhook"
	"email-gateway/shared/waittest"
	"email-gateway/worker/internal/webhook"
)

// blocking is a store whose statements for one company do not end until released.
type blocking struct {
	*webhookstore.SenderStore
	company uuid.UUID
	free    chan struct{}
	running atomic.Int32
	most    atomic.Int32
}

func (b *blocking) Read(ctx context.Context, company uuid.UUID, after webhookstore.Cursor, filter []string, limit int) (webhookstore.EventPage, error) {
	if company == b.company {
		b.most.Store(max(b.most.Load(), b.running.Add(1)))
		defer b.running.Add(-1)
		select {
		case <-b.free:
		case <-ctx.Done():
		}
	}
	return b.SenderStore.Read(ctx, company, after, filter, limit)
}

// One company's endpoints with slow statements do not keep the connections from another company.
func TestService_SlowStatements(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	busy, quiet := w.Company(t), w.Company(t)
	var all []*receiver
	for range 20 {
		all = append(all, w.endpoint(t, busy))
	}
	other := w.endpoint(t, quiet)
	store := &blocking{SenderStore: w.Sending, company: busy, free: make(chan struct{})}
	w.start(t, func(p *webhook.Params) { p.Store = store })
	w.emit(t, busy, 5, 2)
	waittest.Until(t, "statements of the busy company", func() bool { return store.running.Load() > 0 })
	w.emit(t, quiet, 5, 2)
	waittest.Until(t, "the other company's events", func() bool { return len(other.messages()) == 10 })
	if n := store.running.Load(); n == 0 || n > 2 {
		t.Errorf("%d statements of the busy company run", n)
	}
	close(store.free)
	for _, r := range all {
		waittest.Until(t, "its own events", func() bool { return len(r.messages()) == 10 })
		r.check(t, w, 10)
	}
	if n := store.most.Load(); n > 2 {
		t.Errorf("%d statements of one company ran at once", n)
	}
}

// Two workers have an endpoint for a moment, because the lease of the first has ended during a request: its other
// events are not skipped, and none is delivered before an earlier one of its email.
func TestService_LeaseTakenOver(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	company := w.Company(t)
	r := w.endpoint(t, company)
	var once sync.Once
	first := make(chan struct{})
	hold := make(chan struct{})
	r.setAnswer(func(message) int {
		held := false
		once.Do(func() { held = true; close(first) })
		if held { // the first worker's only request is in flight while another one takes over
			<-hold
		}
		return http.StatusOK
	})
	w.emit(t, company, 1, 4)
	one := w.start(t, nil)
	<-first
	w.exec(t, `UPDATE webhook_endpoints SET lease_until = now() - interval '1 s'`)
	w.start(t, nil)
	waittest.Until(t, "the page by the second worker", func() bool { return len(r.messages()) >= 4 })
	close(hold)
	waittest.Until(t, "the end of the first worker's request", func() bool { return len(r.messages()) >= 5 })
	if err := one.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	if e := w.find(t, r); e.Open != 0 || e.Failures != 0 {
		t.Errorf("%+v", e)
	}
	w.emit(t, company, 3, 4)
	waittest.Until(t, "later events", func() bool {
		seen := map[string]bool{}
		for _, m := range r.messages() {
			seen[m.ID] = true
		}
		return len(seen) == 16
	})
	r.check(t, w, 16)
}

// Endpoints of many companies begin to hang at the same time. They do not delay another company until their requests
// time out.
func TestService_ManyCompaniesHang(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	hold := make(chan struct{})
	var hanging atomic.Int32
	for range 10 {
		company := w.Company(t)
		for range 4 {
			w.endpoint(t, company).setAnswer(func(message) int {
				hanging.Add(1)
				<-hold
				return http.StatusOK
			})
		}
		w.emit(t, company, 8, 1)
	}
	t.Cleanup(func() { close(hold) }) // before the servers are closed
	quiet := w.Company(t)
	other := w.endpoint(t, quiet)
	w.start(t, func(p *webhook.Params) {
		p.Sender = webhook.NewSender(webhook.SenderParams{AllowPrivate: true, Timeout: 10 * time.Minute})
	})
	waittest.Until(t, "requests in all slots", func() bool { return hanging.Load() >= 64 })
	w.emit(t, quiet, 5, 2)
	waittest.Until(t, "the other company's events", func() bool { return len(other.messages()) == 10 })
}
