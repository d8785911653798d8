package maintenance

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/google/uuid"

	"email-gateway/shared/service"
)

const (
	// scheduledInterval is how long a company that is close to its quota of scheduled emails may be refused because of emails that
	// have been sent, where requests do not count them, beside the time that the count takes.
	scheduledInterval = 10 * time.Second
	// scheduledPage is how many emails one statement counts: 10 ms if they are in memory, and seconds if each is read from a disk.
	scheduledPage = 20_000
)

// ScheduledStore has the database operations of the counter.
type ScheduledStore interface {
	DueCounts(ctx context.Context) ([]uuid.UUID, error)
	Count(ctx context.Context, company uuid.UUID, page int) error
}

// ScheduledCounterParams configure a ScheduledCounter.
type ScheduledCounterParams struct {
	Log   *slog.Logger
	Store ScheduledStore
}

// ScheduledCounter counts the scheduled emails of companies that have too many for a request to count.
type ScheduledCounter struct {
	*service.Loop
}

// NewScheduledCounter makes a counter that is not running yet.
func NewScheduledCounter(p ScheduledCounterParams) *ScheduledCounter {
	return &ScheduledCounter{service.NewLoop(service.LoopParams{
		Log: p.Log, Interval: scheduledInterval,
		RunOnce: func(ctx context.Context) (more bool, err error) {
			due, err := p.Store.DueCounts(ctx)
			for _, company := range due {
				if ctx.Err() != nil {
					break
				}
				err = errors.Join(err, p.Store.Count(ctx, company, scheduledPage)) // a failure delays no other company
			}
			return false, err
		},
	})}
}
