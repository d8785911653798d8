package mailing

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/google/uuid"
	"github.com/prometheus/client_golang/prometheus"

	"email-gateway/shared/service"
	mailingstore "email-gateway/shared/store/mailing"
)

const (
	// countInterval is the minimum age of a mailing's numbers at which they are counted again.
	countInterval = time.Second
	// lastInterval is the minimum time between two counts of a mailing that is about to end; fairloop.Schedule
	// makes it longer if the counts are slow.
	lastInterval = 50 * time.Millisecond
	// idleLimit is the longest pause between two counts of a mailing that has no mark and whose numbers do not
	// change, for example because its lane is paused. A change adds a mark, unless a program of the previous release makes it.
	idleLimit = 2 * time.Minute
	// largeLines is the number of lines from which on a mailing is counted by a loop of its own. Fewer take some 50 ms.
	largeLines = 100_000
)

// CountStore has the database operations of the counter.
type CountStore interface {
	OpenMailings(ctx context.Context) ([]mailingstore.OpenMailing, error)
	CountMailing(ctx context.Context, id uuid.UUID) (mailingstore.Tally, error)
	FoldMailingFeedback(ctx context.Context) (int, error)
}

// CounterParams configure a Counter.
type CounterParams struct {
	Log      *slog.Logger
	Store    CountStore
	Registry prometheus.Registerer
}

// Counter updates the numbers of mailings, which are counted from their entries and from feedback,
// and completes mailings whose entries have all ended. Small mailings do not wait for the counts of large ones.
type Counter struct {
	small, large *countLoop
	feedback     *service.Loop
}

// NewCounter makes a counter that is not running yet.
func NewCounter(p CounterParams) *Counter {
	completed := prometheus.NewCounter(prometheus.CounterOpts{
		Name: "mailing_completed_total", Help: "Mailings whose entries have all ended.",
	})
	p.Registry.MustRegister(completed)
	return &Counter{
		small: newCountLoop(p, completed, func(m mailingstore.OpenMailing) bool { return m.Lines < largeLines }),
		large: newCountLoop(p, completed, func(m mailingstore.OpenMailing) bool { return m.Lines >= largeLines }),
		feedback: service.NewLoop(service.LoopParams{Log: p.Log, Interval: countInterval, RunOnce: func(ctx context.Context) (more bool, err error) {
			_, err = p.Store.FoldMailingFeedback(ctx)
			return false, err
		}}),
	}
}

// Start implements service.Service.
func (c *Counter) Start(ctx context.Context, fatal func(error)) error {
	return errors.Join(c.small.Start(ctx, fatal), c.large.Start(ctx, fatal), c.feedback.Start(ctx, fatal))
}

// Stop implements service.Service.
func (c *Counter) Stop(ctx context.Context) error {
	return errors.Join(c.small.Stop(ctx), c.large.Stop(ctx), c.feedback.Stop(ctx))
}
