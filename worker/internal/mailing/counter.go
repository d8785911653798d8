package mailing

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/google/uuid"
	"github.com/prometheus/client_golang/prometheus"

	"email-gateway/shared/service"
	"email-gateway/shared/store"
)

const (
	// countInterval is how old a mailing's numbers are at least when they are renewed.
	countInterval = time.Second
	// idleLimit is the longest pause between two counts of a small mailing whose numbers do
	// not change, for example because its lane is held.
	idleLimit = 10 * time.Second
)

// CountStore is what the counter asks of the database.
type CountStore interface {
	OpenMailings(ctx context.Context) ([]store.OpenMailing, error)
	CountMailing(ctx context.Context, id uuid.UUID) (store.MailingTally, error)
}

// CounterParams make a Counter.
type CounterParams struct {
	Log      *slog.Logger
	Store    CountStore
	Registry prometheus.Registerer
}

// Counter keeps the numbers of mailings, which are counted from their entries, and
// completes those whose entries have all ended.
type Counter struct {
	*service.Loop
	params    CounterParams
	completed prometheus.Counter
	rest      pacer
	last      map[uuid.UUID]counted
}

// counted is a mailing's last count by this process, and how often it came out the same.
type counted struct {
	tally store.MailingTally
	idle  int
	until time.Time // when it is worth another look, if nobody says that it is out of date
}

// NewCounter makes a counter that is not running yet.
func NewCounter(p CounterParams) *Counter {
	c := &Counter{params: p, rest: make(pacer), last: make(map[uuid.UUID]counted), completed: prometheus.NewCounter(prometheus.CounterOpts{
		Name: "mailing_completed_total", Help: "Mailings all of whose entries have ended.",
	})}
	p.Registry.MustRegister(c.completed)
	c.Loop = service.NewLoop(service.LoopParams{Log: p.Log, Interval: countInterval, RunOnce: c.runOnce})
	return c
}

func (c *Counter) runOnce(ctx context.Context) (more bool, err error) {
	open, err := c.params.Store.OpenMailings(ctx)
	if err != nil {
		return false, err
	}
	ids := make([]uuid.UUID, len(open))
	for i, m := range open {
		ids[i] = m.ID
	}
	c.keep(ids)
	var errs []error
	for _, m := range open {
		begun := time.Now()
		if !c.rest.due(m.ID, begun) || m.CountedAt != nil && c.fresh(m, begun) {
			continue
		}
		tally, err := c.params.Store.CountMailing(ctx, m.ID)
		if err != nil {
			c.rest.wait(m.ID, begun, countInterval)
			errs = append(errs, fmt.Errorf("mailing %s: %w", m.ID, err))
			continue
		}
		c.rest.wait(m.ID, begun, countInterval)
		c.note(m.ID, tally)
		if tally.Completed {
			c.completed.Inc()
			c.params.Log.Info("mailing completed", "mailingId", m.ID,
				"sent", tally.Sent, "failed", tally.Failed, "unknown", tally.Unknown, "invalid", tally.InvalidLater,
				"suppressed", tally.Suppressed, "expired", tally.Expired, "cancelled", tally.Cancelled)
		}
	}
	return false, errors.Join(errs...)
}

// fresh: another process has counted it just now, or nothing has moved for a while.
func (c *Counter) fresh(m store.OpenMailing, now time.Time) bool {
	return m.Age() < countInterval-countInterval/10 || now.Before(c.last[m.ID].until)
}

// note remembers a count. Each time nothing has moved the mailing rests for longer.
func (c *Counter) note(id uuid.UUID, tally store.MailingTally) {
	before, known := c.last[id]
	now := counted{tally: tally}
	if known && before.tally == tally {
		now.idle = before.idle + 1
	}
	now.until = time.Now().Add(min(countInterval<<min(now.idle, 8), idleLimit))
	c.last[id] = now
}

// keep forgets all mailings but these.
func (c *Counter) keep(ids []uuid.UUID) {
	c.rest.keep(ids)
	for id := range c.last {
		if _, known := c.rest[id]; !known {
			delete(c.last, id)
		}
	}
}
