// Package maintenance has the background loops that enforce deadlines and retention, and repair inconsistencies after crashes.
// The dispatcher runs them; any number of processes may run them at once.
package maintenance

import (
	"context"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/errgroup"

	"email-gateway/shared/email"
	"email-gateway/shared/service"
	"email-gateway/shared/store/dispatch"
	"email-gateway/shared/store/outbox"
)

const (
	// sweepInterval is the maximum delay until an expiry is noticed. A round costs one short index scan.
	sweepInterval = time.Second
	// sweepBatch bounds a round. sweepers is how many transitions run concurrently: the Advancer writes them in one commit.
	sweepBatch = 500
	sweepers   = 64
)

// OverdueStore has the database operations of the sweeper.
type OverdueStore interface {
	Overdue(ctx context.Context, limit int) ([]dispatch.OverdueEmail, error)
}

// Advancer changes an email's status.
type Advancer interface {
	Advance(ctx context.Context, t outbox.Transition) (outbox.Advanced, error)
}

// ExpirySweeper expires emails whose deadline passed while they waited. A worker does the same for the tasks it receives, among
// them emails that were past their deadline when the dispatcher enqueued them. The sweeper handles all other emails: those that
// are paused or parked, wait for a retry, or wait while no workers run.
type ExpirySweeper struct {
	*service.Loop
	log      *slog.Logger
	store    OverdueStore
	advancer Advancer
	expired  *prometheus.CounterVec
}

// SweeperParams configure an ExpirySweeper.
type SweeperParams struct {
	Log      *slog.Logger
	Store    OverdueStore
	Advancer Advancer
	Registry prometheus.Registerer
}

// NewExpirySweeper makes a sweeper that is not running yet.
func NewExpirySweeper(p SweeperParams) *ExpirySweeper {
	s := &ExpirySweeper{
		log: p.Log, store: p.Store, advancer: p.Advancer,
		expired: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "outbox_expired_total", Help: "Emails expired by the sweeper because their deadline had passed, by why they waited (suspended, paused, held, none).",
		}, []string{"cause"}),
	}
	for _, cause := range dispatch.ExpiryCauses() {
		s.expired.WithLabelValues(cause)
	}
	p.Registry.MustRegister(s.expired)
	s.Loop = service.NewLoop(service.LoopParams{
		Log: p.Log, Interval: sweepInterval, RunOnce: s.runOnce, ErrorDelay: 10 * sweepInterval,
	})
	return s
}

func (s *ExpirySweeper) runOnce(ctx context.Context) (more bool, err error) {
	overdue, err := s.store.Overdue(ctx, sweepBatch)
	if err != nil || len(overdue) == 0 {
		return false, err
	}
	var swept atomic.Int64
	var sweeping errgroup.Group
	sweeping.SetLimit(sweepers)
	for _, e := range overdue {
		sweeping.Go(func() error {
			moved, err := s.advancer.Advance(ctx, expiry(e))
			if moved.Applied {
				swept.Add(1)
				s.expired.WithLabelValues(e.Cause).Inc()
			}
			return err
		})
	}
	err = sweeping.Wait()
	n := int(swept.Load())
	if n == 0 && err != nil {
		return false, fmt.Errorf("expire emails: %w", err)
	}
	if n > 0 {
		s.log.Info("emails expired", "count", n)
	}
	if err != nil && ctx.Err() == nil { // an email that cannot be written must not block the others
		s.log.Error("some emails could not be expired", "error", email.MaskText(err.Error()))
	}
	return n > 0 && len(overdue) == sweepBatch, nil
}

// expiry returns a transition that is guarded by the deadline: an email that got a new deadline or was claimed after it was
// listed is not changed.
func expiry(e dispatch.OverdueEmail) outbox.Transition {
	return outbox.Transition{
		ID: e.ID, Guard: outbox.GuardOverdue, GiveWay: e.HasAggregate, Status: email.Expired, ErrorCode: email.CodeExpired,
		Events: []email.Event{{
			Type: email.EventExpired, At: time.Now().UTC(), Metadata: map[string]any{"expiresAt": e.ExpiresAt.UTC()},
		}},
	}
}

func count(marks []bool) (n int) {
	for _, marked := range marks {
		if marked {
			n++
		}
	}
	return n
}
