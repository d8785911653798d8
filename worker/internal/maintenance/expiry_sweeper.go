// Package maintenance holds the small loops that keep the tables true and small:
// what time does to an email or a row when nobody else touches it. The dispatcher's
// main function runs them; any number may run at once.
package maintenance

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/errgroup"

	"email-gateway/shared/email"
	"email-gateway/shared/service"
	"email-gateway/shared/store"
)

const (
	// sweepInterval is how late an expiry is seen at most. Looking costs one short
	// index scan.
	sweepInterval = time.Second
	// sweepBatch bounds one round, sweepers how many of it are written at a time: the
	// Advancer makes one commit of those.
	sweepBatch = 500
	sweepers   = 64
)

// OverdueStore is what the sweeper asks of the database.
type OverdueStore interface {
	Overdue(ctx context.Context, limit int) ([]store.OverdueEmail, error)
}

// Advancer moves an email to another status.
type Advancer interface {
	Advance(ctx context.Context, t store.Transition) (store.Advanced, error)
}

// ExpirySweeper ends emails whose deadline passed while they waited. A worker does
// the same for those whose task it meets; the sweeper is for all the others: paused,
// parked, scheduled for a retry, or waiting for workers that are not there.
type ExpirySweeper struct {
	*service.Loop
	log      *slog.Logger
	store    OverdueStore
	advancer Advancer
	expired  prometheus.Counter
}

// SweeperParams make an ExpirySweeper.
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
		expired: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "outbox_expired_total", Help: "Emails ended by the sweeper because their deadline had passed.",
		}),
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
	swept := make([]bool, len(overdue))
	var sweeping errgroup.Group
	sweeping.SetLimit(sweepers)
	for i, e := range overdue {
		sweeping.Go(func() error {
			moved, err := s.advancer.Advance(ctx, expiry(e))
			swept[i] = moved.Applied
			return err
		})
	}
	err = sweeping.Wait()
	n := count(swept)
	if n == 0 && err != nil {
		return false, fmt.Errorf("expire emails: %w", err)
	}
	if n > 0 {
		s.expired.Add(float64(n))
		s.log.Info("emails expired", "count", n)
	}
	if err != nil && ctx.Err() == nil { // one that cannot be written must not hold up those behind it
		s.log.Error("not every email expired", "error", email.MaskText(err.Error()))
	}
	return n > 0 && len(overdue) == sweepBatch, nil
}

// expiry is guarded by the deadline itself: an email that was given a new one since
// it was listed, or that a worker has claimed, stays as it is.
func expiry(e store.OverdueEmail) store.Transition {
	return store.Transition{
		ID: e.ID, Guard: store.GuardOverdue, GiveWay: e.About, Status: email.Expired, ErrorCode: email.CodeExpired,
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
