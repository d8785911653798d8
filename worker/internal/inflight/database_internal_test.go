package inflight

import (
	"context"
	"errors"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"email-gateway/worker/internal/dbcheck"
)

// While Postgres cannot be used no task is admitted, and the slots and tokens are free for when it can. That includes an
// admission that waits for its token when a statement fails.
func TestLimiter_AwaitsDatabase(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		away := true
		db := dbcheck.New(slog.New(slog.DiscardHandler), func(context.Context) error {
			if away {
				return errors.New("away")
			}
			return nil
		})
		p, others := &pacer{rate: 1000, let: make(chan struct{})}, &suspension{}
		l := New(Params{
			Log: slog.New(slog.DiscardHandler), Pacer: p, Suspension: others, Database: db, Fixed: 1, InFlight: func(int) {}, Registry: prometheus.NewRegistry(),
		})
		admitted := make(chan error)
		ctx, cancel := context.WithCancel(t.Context())
		go func() {
			_, err := l.Admit(ctx, 0, pending)
			admitted <- err
		}()
		synctest.Wait()
		db.Failed()
		p.let <- struct{}{}
		synctest.Wait()
		if _, taken := l.slots.current(); taken != 0 || p.returned != 1 || others.unused.Load() != 1 {
			t.Errorf("%d slots taken, %d tokens returned, %d places in a suspension", taken, p.returned, others.unused.Load())
		}
		cancel()
		if err := <-admitted; !errors.Is(err, context.Canceled) {
			t.Errorf("admitted during the outage: %v", err)
		}
		away = false
		start := time.Now()
		go func() { p.let <- struct{}{} }()
		if _, err := l.Admit(t.Context(), 0, pending); err != nil || time.Since(start) > 2*time.Second {
			t.Errorf("after the outage: %v in %s", err, time.Since(start))
		}
	})
}
