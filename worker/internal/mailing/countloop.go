package mailing

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/google/uuid"
	"github.com/prometheus/client_golang/prometheus"

	"email-gateway/shared/service"
	mailingstore "email-gateway/shared/store/mailing"
	"email-gateway/worker/internal/fairloop"
)

// countLoop counts some of the mailings, one after another. Companies take turns. Of each company, those that were never counted
// come first, the ones with the fewest lines before others.
type countLoop struct {
	*service.Loop
	params    CounterParams
	completed prometheus.Counter
	counts    func(mailingstore.OpenMailing) bool
	schedule  fairloop.Schedule
	last      map[uuid.UUID]counted
	wake      chan struct{}
	timer     *time.Timer // for the next wake-up; nil = none yet
}

// counted is this process's last count of a mailing, and the number of equal counts in a row.
type counted struct {
	tally mailingstore.Tally
	at    time.Time
	idle  int
	// pause is how old a count may be, by Postgres's clock, until the mailing is counted again without a mark. Other processes
	// count it too.
	pause time.Duration
	// ends is when all entries will have ended at the rate between the last two counts; zero =
	// later than countInterval.
	ends time.Time
}

func newCountLoop(p CounterParams, completed prometheus.Counter, counts func(mailingstore.OpenMailing) bool) *countLoop {
	c := &countLoop{params: p, completed: completed, counts: counts, schedule: make(fairloop.Schedule), last: make(map[uuid.UUID]counted), wake: make(chan struct{}, 1)}
	c.Loop = service.NewLoop(service.LoopParams{Log: p.Log, Interval: countInterval, Wake: c.wake, RunOnce: c.runOnce})
	return c
}

func (c *countLoop) runOnce(ctx context.Context) (more bool, err error) {
	open, err := c.params.Store.OpenMailings(ctx)
	if err != nil {
		return false, err
	}
	open = slices.DeleteFunc(open, func(m mailingstore.OpenMailing) bool { return !c.counts(m) })
	ids := make(map[uuid.UUID]bool, len(open))
	for _, m := range open {
		ids[m.ID] = true
	}
	c.keep(ids)
	now := time.Now()
	open = slices.DeleteFunc(open, func(m mailingstore.OpenMailing) bool {
		return !c.schedule.Due(m.ID, now) || m.CountedAt != nil && c.fresh(m)
	})
	slices.SortStableFunc(open, func(a, b mailingstore.OpenMailing) int { return c.schedule.LongerDue(a.ID, b.ID) })
	var errs []error
	left := fairloop.Pass(open, func(m mailingstore.OpenMailing) uuid.UUID { return m.CompanyID }, fairloop.PassTime, func(m mailingstore.OpenMailing) {
		errs = append(errs, c.count(ctx, m.ID))
	})
	c.scheduleCompletionCheck()
	return left, errors.Join(errs...)
}

func (c *countLoop) count(ctx context.Context, id uuid.UUID) error {
	start := time.Now()
	tally, err := c.params.Store.CountMailing(ctx, id)
	if err != nil {
		c.schedule.PostponeLong(id, start, countInterval, idleLimit)
		return fmt.Errorf("mailing %s: %w", id, err)
	}
	c.note(id, tally, time.Since(start))
	c.sleep(id, start)
	if tally.Completed {
		c.completed.Inc()
		c.params.Log.Info("mailing completed", "mailingId", id,
			"sent", tally.Sent, "failed", tally.Failed, "unknown", tally.Unknown, "invalid", tally.InvalidLater,
			"suppressed", tally.Suppressed, "expired", tally.Expired, "cancelled", tally.Cancelled)
	}
	return nil
}

// sleep schedules the next count of a mailing. start is when its last count began.
func (c *countLoop) sleep(id uuid.UUID, start time.Time) {
	if ends := c.last[id].ends; ends.IsZero() {
		c.schedule.Postpone(id, start, countInterval)
	} else {
		c.schedule.PostponeBriefly(id, start, max(time.Until(ends), lastInterval))
	}
}

// scheduleCompletionCheck schedules the next round for the first count of a mailing that is about to end.
func (c *countLoop) scheduleCompletionCheck() {
	var first time.Time
	for id, counted := range c.last {
		if due := c.schedule[id]; !counted.ends.IsZero() && (first.IsZero() || due.Before(first)) {
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

// fresh reports whether a process has just counted the mailing, or its numbers have not
// changed for a while. A mailing that is about to end is not fresh.
func (c *countLoop) fresh(m mailingstore.OpenMailing) bool {
	last := c.last[m.ID]
	if !last.ends.IsZero() {
		return false
	}
	pause := countInterval
	if !m.Changed {
		pause = max(pause, last.pause)
	}
	return m.Age() < pause-countInterval/10
}

// note stores a count, which took so long. Each equal count in a row lengthens the pause.
func (c *countLoop) note(id uuid.UUID, tally mailingstore.Tally, took time.Duration) {
	before, known := c.last[id]
	now := counted{tally: tally, at: time.Now()}
	if known {
		now.ends = now.expectedEnd(before)
	}
	if known && before.tally == tally {
		now.idle = before.idle + 1
	}
	now.pause = min(countInterval<<min(now.idle, 8), idleLimit)
	if now.idle > 0 {
		now.pause = max(now.pause, min(fairloop.RestPerWork*took, idleLimit))
	}
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

// keep drops the loop's state of all mailings except these.
func (c *countLoop) keep(ids map[uuid.UUID]bool) {
	c.schedule.Retain(ids)
	for id := range c.last {
		if _, known := c.schedule[id]; !known {
			delete(c.last, id)
		}
	}
}
