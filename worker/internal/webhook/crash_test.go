package webhook_test

import (
	"context"
	"errors"
	"net/http"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"

	webhookstore "email-gateway/shared/store/webhook"
	"email-gateway/shared/waittest"
	"email-gateway/worker/internal/webhook"
)

// dying is a store whose process dies around one call: nothing that it writes afterwards arrives.
type dying struct {
	*webhookstore.SenderStore
	at    string
	skip  int32
	calls atomic.Int32
	dead  atomic.Bool
}

var errDead = errors.New("the process is dead")

// step returns an error from the chosen call on, before or after it is carried out.
func (d *dying) step(name string, do func() error) error {
	if d.dead.Load() {
		return errDead
	}
	switch {
	case d.at == name+"/before" && d.calls.Add(1) > d.skip:
		d.dead.Store(true)
		return errDead
	case d.at == name+"/after" && d.calls.Add(1) > d.skip:
		_ = do()
		d.dead.Store(true)
		return errDead
	}
	return do()
}

func (d *dying) Take(ctx context.Context, l webhookstore.Lease, t time.Duration) error {
	return d.step("take", func() error { return d.SenderStore.Take(ctx, l, t) })
}

func (d *dying) Release(ctx context.Context, l webhookstore.Lease) error {
	return d.step("release", func() error { return d.SenderStore.Release(ctx, l) })
}

func (d *dying) Renew(ctx context.Context, l webhookstore.Lease, t time.Duration) error {
	return d.step("renew", func() error { return d.SenderStore.Renew(ctx, l, t) })
}

func (d *dying) Load(ctx context.Context, l webhookstore.Lease, probe time.Duration) (r webhookstore.Round, err error) {
	err = d.step("load", func() error { r, err = d.SenderStore.Load(ctx, l, probe); return err })
	return r, err
}

func (d *dying) Read(ctx context.Context, company uuid.UUID, after webhookstore.Cursor, filter []string, limit int) (p webhookstore.EventPage, err error) {
	err = d.step("read", func() error { p, err = d.SenderStore.Read(ctx, company, after, filter, limit); return err })
	return p, err
}

func (d *dying) Record(ctx context.Context, l webhookstore.Lease, r webhookstore.Result, after time.Duration) (done webhookstore.Recorded, err error) {
	err = d.step("record", func() error { done, err = d.SenderStore.Record(ctx, l, r, after); return err })
	return done, err
}

// A process that dies around any step leaves nothing out: the next one repeats the page. The lease of the dead one
// is ended by hand, as its minute would.
func TestService_DeathRepeatsAndNeverSkips(t *testing.T) {
	t.Parallel()
	for _, at := range []string{"take/after", "load/after", "read/after", "record/before", "record/after", "release/before"} {
		t.Run(at, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			company := w.Company(t)
			r := w.endpoint(t, company)
			var n atomic.Int32
			r.setAnswer(func(message) int { // one in ten fails
				if n.Add(1)%10 == 0 {
					return http.StatusInternalServerError
				}
				return http.StatusOK
			})
			w.emit(t, company, 40, 5)
			broken := &dying{SenderStore: w.Sending, at: at, skip: 1}
			if at == "take/after" || at == "release/before" {
				broken.skip = 0
			}
			first := w.start(t, func(p *webhook.Params) { p.Store, p.Schedule = broken, scaled(20*time.Millisecond) })
			waittest.Until(t, "the death", func() bool { return broken.dead.Load() })
			if err := first.Stop(t.Context()); err != nil {
				t.Fatal(err)
			}
			w.exec(t, `UPDATE webhook_endpoints SET lease_until = now() WHERE lease_token IS NOT NULL`)
			w.start(t, func(p *webhook.Params) { p.Schedule = scaled(20 * time.Millisecond) })
			waittest.Until(t, "every event", func() bool {
				seen := map[string]bool{}
				for _, m := range r.messages() {
					seen[m.ID] = true
				}
				return len(seen) == 200
			})
			r.check(t, w, 200)
		})
	}
}
