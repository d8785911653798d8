package maintenance

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/google/uuid"
	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/errgroup"

	"email-gateway/shared/email"
	"email-gateway/shared/service"
	"email-gateway/shared/store"
)

const (
	// rescueInterval is how late a crash is noticed beyond the lease, or beyond RESCUE_AFTER.
	rescueInterval = 5 * time.Second
	// leaseGrace lets a worker whose answer is just being written down finish.
	leaseGrace = 5 * time.Second
	// rescueBatch bounds one round, rescuers how many of it are worked on at a time.
	rescueBatch = 500
	rescuers    = 64
)

// RescueStore is what the rescuer asks of the database.
type RescueStore interface {
	AbandonedClaims(ctx context.Context, grace time.Duration, limit int) ([]store.UnknownOutcome, error)
	LongEnqueued(ctx context.Context, age time.Duration, after uuid.UUID, limit int) ([]store.LongEnqueued, error)
	ReturnLost(ctx context.Context, ids []uuid.UUID, age time.Duration) (int, error)
}

// Evicter tells whether a task of an id will ever be given to a worker, and removes it
// if not.
type Evicter interface {
	Evict(ctx context.Context, queue, id string) (gone bool, err error)
}

// Rescuer brings back emails that a crash left behind: those in the hands of a worker
// that is gone, and those whose task the queue has lost. It looks at emails that are on
// their way only, so what it costs does not grow with what was sent.
type Rescuer struct {
	*service.Loop
	params  RescuerParams
	rescued *prometheus.CounterVec
}

// RescuerParams make a Rescuer.
type RescuerParams struct {
	Log      *slog.Logger
	Store    RescueStore
	Outcomes Outcomes
	Queue    Evicter
	Registry prometheus.Registerer
	// After is how long an email stands on its queue before the queue is asked whether
	// it is still there.
	After time.Duration
}

// NewRescuer makes a rescuer that is not running yet.
func NewRescuer(p RescuerParams) *Rescuer {
	r := &Rescuer{params: p, rescued: prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "outbox_rescued_total", Help: "Emails brought back after a crash, by the status they were left in.",
	}, []string{"status"})}
	p.Registry.MustRegister(r.rescued)
	r.Loop = service.NewLoop(service.LoopParams{
		Log: p.Log, Interval: rescueInterval, RunOnce: r.runOnce, ErrorDelay: rescueInterval,
	})
	return r
}

func (r *Rescuer) runOnce(ctx context.Context) (more bool, err error) {
	more, claims := r.rescueClaims(ctx)
	return more, errors.Join(claims, r.rescueTasks(ctx))
}

// rescueClaims ends attempts whose worker has not told how they ended.
func (r *Rescuer) rescueClaims(ctx context.Context) (more bool, err error) {
	abandoned, err := r.params.Store.AbandonedClaims(ctx, leaseGrace, rescueBatch)
	if err != nil || len(abandoned) == 0 {
		return false, err
	}
	n, err := r.params.Outcomes.end(ctx, abandoned, store.GuardAbandoned)
	r.tell(email.Processing, n)
	return err == nil && len(abandoned) == rescueBatch, err
}

// rescueTasks asks the queue about every email that has stood on it for long. Those
// whose task is gone go back to the dispatcher. An email that is put on the queue once
// too often meets the fence, so a mistake here costs a task and no email.
func (r *Rescuer) rescueTasks(ctx context.Context) error {
	after := uuid.Nil
	for {
		long, err := r.params.Store.LongEnqueued(ctx, r.params.After, after, rescueBatch)
		if err != nil || len(long) == 0 {
			return err
		}
		after = long[len(long)-1].ID
		lost, evicting := r.evict(ctx, long)
		if len(lost) > 0 {
			n, err := r.params.Store.ReturnLost(ctx, lost, r.params.After)
			if err != nil {
				return err
			}
			r.tell(email.Enqueued, n)
		}
		if evicting != nil || len(long) < rescueBatch {
			return evicting
		}
	}
}

func (r *Rescuer) evict(ctx context.Context, long []store.LongEnqueued) (lost []uuid.UUID, err error) {
	gone := make([]bool, len(long))
	var asking errgroup.Group
	asking.SetLimit(rescuers)
	for i, e := range long {
		asking.Go(func() (err error) {
			gone[i], err = r.params.Queue.Evict(ctx, e.Queue, e.ID.String())
			return err
		})
	}
	err = asking.Wait()
	for i, e := range long {
		if gone[i] {
			lost = append(lost, e.ID)
		}
	}
	return lost, err
}

func (r *Rescuer) tell(status email.Status, n int) {
	if n == 0 {
		return
	}
	r.rescued.WithLabelValues(string(status)).Add(float64(n))
	r.params.Log.Warn("emails rescued", "leftIn", status, "count", n)
}
