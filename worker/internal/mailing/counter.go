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
	// countInterval is the minimum age of a mailing's numbers at which they are counted again.
	countInterval = time.Second
	// lastInterval is the minimum time between two counts of a mailing that is about to end; pacer
	// makes it longer if the counts are slow.
	lastInterval = 50 * time.Millisecond
	// idleLimit is the longest pause between two counts of a small mailing whose numbers do not
	// change, for example because its lane is paused.
	idleLimit = 10 * time.Second
)

// CountStore has the database operations of the counter.
type CountStore interface {
	OpenMailings(ctx context.Context) ([]store.OpenMailing, error)
	CountMailing(ctx context.Context, id uuid.UUID) (store.MailingTally, error)
	FoldMailingFeedback(ctx context.Context) (int, error)
}

// CounterParams configure a Counter.
type CounterParams struct {
	Log      *slog.Logger
	Store    CountStore
	Registry prometheus.Registerer
}

// Counter updates the numbers of mailings, which are counted from their entries and from feedback,
// and completes mailings whose entries have all ended.
type Counter struct {
	*service.Loop
	params    CounterParams
	completed prometheus.Counter
	rest      pacer
	last      map[uuid.UUID]counted
	wake      chan struct{}
	timer     *time.Timer // for the next wake-up; nil = none yet
}

// counted is this process's last count of a mailing, and the number of equal counts in a row.
type counted struct {
	tally store.MailingTally
	at    time.Time
	idle  int
	until time.Time // when it is counted again, unless its numbers become out of date
	// ends is when all entries will have ended at the rate between the last two counts; zero =
	// later than countInterval.
	ends time.Time
}

// NewCounter makes a counter that is not running yet.
func NewCounter(p CounterParams) *Counter {
	c := &Counter{params: p, rest: make(pacer), last: make(map[uuid.UUID]counted), wake: make(chan struct{}, 1), completed: prometheus.NewCounter(prometheus.CounterOpts{
		Name: "mailing_completed_total", Help: "Mailings whose entries have all ended.",
	})}
	p.Registry.MustRegister(c.completed)
	c.Loop = service.NewLoop(service.LoopParams{Log: p.Log, Interval: countInterval, Wake: c.wake, RunOnce: c.runOnce})
	return c
}

func (c *Counter) runOnce(ctx context.Context) (more bool, err error) {
	_, failed := c.params.Store.FoldMailingFeedback(ctx)
	open, err := c.params.Store.OpenMailings(ctx)
	if err != nil {
		return false, errors.Join(failed, err)
	}
	ids := make([]uuid.UUID, len(open))
	for i, m := range open {
		ids[i] = m.ID
	}
	c.keep(ids)
	errs := []error{failed}
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
		c.note(m.ID, tally)
		c.sleep(m.ID, begun)
		if tally.Completed {
			c.completed.Inc()
			c.params.Log.Info("mailing completed", "mailingId", m.ID,
				"sent", tally.Sent, "failed", tally.Failed, "unknown", tally.Unknown, "invalid", tally.InvalidLater,
				"suppressed", tally.Suppressed, "expired", tally.Expired, "cancelled", tally.Cancelled)
		}
	}
	c.wakeForEnds()
	return false, errors.Join(errs...)
}

// sleep schedules the next count of a mailing. begun is when its last count began.
func (c *Counter) sleep(id uuid.UUID, begun time.Time) {
	if ends := c.last[id].ends; ends.IsZero() {
		c.rest.wait(id, begun, countInterval)
	} else {
		c.rest.waitShortly(id, begun, max(time.Until(ends), lastInterval))
	}
}

// wakeForEnds schedules the next round for the first count of a mailing that is about to end.
func (c *Counter) wakeForEnds() {
	var first time.Time
	for id, counted := range c.last {
		if due := c.rest[id]; !counted.ends.IsZero() && (first.IsZero() || due.Before(first)) {
			first = due
		}
	}
	if c.timer != nil {
		c.timer.Stop()
	}
	if first.IsZero() {
		return
	}
	c.timer = time.AfterFunc(time.Until(first), func() {
		select {
		case c.wake <- struct{}{}:
		default: // a round is due already
		}
	})
}

// fresh reports whether another process has just counted the mailing, or its numbers have not
// changed for a while. A mailing that is about to end is not fresh.
func (c *Counter) fresh(m store.OpenMailing, now time.Time) bool {
	if !c.last[m.ID].ends.IsZero() {
		return false
	}
	return m.Age() < countInterval-countInterval/10 || now.Before(c.last[m.ID].until)
}

// note stores a count. Each equal count in a row lengthens the pause.
func (c *Counter) note(id uuid.UUID, tally store.MailingTally) {
	before, known := c.last[id]
	now := counted{tally: tally, at: time.Now()}
	if known {
		now.ends = now.expectedEnd(before)
	}
	if known && before.tally == tally {
		now.idle = before.idle + 1
	}
	now.until = now.at.Add(min(countInterval<<min(now.idle, 8), idleLimit))
	c.last[id] = now
}

// expectedEnd is when the remaining entries will have ended at the rate since the previous count;
// zero if that is later than the next regular count, or if none remain.
func (now counted) expectedEnd(before counted) time.Time {
	left := now.tally.Pending + now.tally.Queued
	ended := before.tally.Pending + before.tally.Queued - left
	if left == 0 || ended <= 0 {
		return time.Time{}
	}
	wait := float64(now.at.Sub(before.at)) * float64(left) / float64(ended) // a product of integers may overflow
	if wait >= float64(countInterval) {
		return time.Time{}
	}
	return now.at.Add(time.Duration(wait))
}

// keep removes all mailings but these.
func (c *Counter) keep(ids []uuid.UUID) {
	c.rest.keep(ids)
	for id := range c.last {
		if _, known := c.rest[id]; !known {
			delete(c.last, id)
		}
	}
}
