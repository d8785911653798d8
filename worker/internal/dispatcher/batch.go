package dispatcher

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"

	"email-gateway/shared/crashpoint"
	"email-gateway/shared/email"
	"email-gateway/shared/store/dispatch"
	lanestore "email-gateway/shared/store/lane"
	"email-gateway/shared/telemetry"
)

const (
	// publishTime bounds the publishing of a batch. An answer to a command that was already sent, for example to a frozen
	// Redis, is awaited for longer: up to the timeout of a pipeline in package asynqueue.
	publishTime = 2 * time.Second
	// batchTime bounds a batch from the reservation on. The reservation lasts 5 s, and the rescuer ignores the emails for half
	// of RESCUE_AFTER, 5 s by default. So a dispatcher that was frozen or waited for Postgres after the reservation publishes
	// nothing when it resumes.
	batchTime = 4 * time.Second
)

// batchStore has what a feeder needs besides its sources.
type batchStore interface {
	// StillTaken counts the emails of a batch that are not finished.
	StillTaken(ctx context.Context, takenAt time.Time, ids []uuid.UUID) (int, error)
	// WakeNamed makes all dispatchers read these lanes.
	WakeNamed(ctx context.Context, lanes []lanestore.Named) error
}

// result is the result of one row of a batch.
type result int

const (
	notSent     result = iota // nothing was sent to the broker: the time was over, or the row is beyond fit
	unconfirmed               // the time was over before the broker answered: the task may be queued
	enqueued
	replaced // the task replaced a delayed one, or one that no worker would have received
	alreadyQueued
	busy // a worker is still processing a task of this id
	refused
)

// publishBatch publishes the first fit rows of a batch, records the results, and returns how many rows were released. A row
// that the broker refuses while it accepts others is postponed, so that it does not block its lane. If the broker accepts none,
// the round fails.
func (f *feeder) publishBatch(ctx, committing context.Context, from source, taken dispatch.Batch, fit int, reserved time.Time) (int, error) {
	crashpoint.At(crashpoint.DispatchTaken)
	publishing, cancel := context.WithTimeout(ctx, min(publishTime, time.Until(reserved.Add(batchTime))))
	results, failure := f.publisher.publishAll(publishing, taken.Rows[:fit])
	results = append(results, make([]result, len(taken.Rows)-fit)...) // notSent
	cancel()
	crashpoint.At(crashpoint.DispatchPublished)
	rows := sortRows(taken.Rows, results, from.leased())
	f.countLost(committing, taken.TakenAt, rows.taskless)
	err := from.record(committing, taken, rows.published, rows.released)
	f.live.released(rows.returned)
	if err != nil {
		return 0, errors.Join(failure, err)
	}
	crashpoint.At(crashpoint.DispatchRecorded)
	f.metrics.done(len(rows.published), len(rows.released))
	// Other dispatchers may have seen these lanes empty, and this dispatcher is stopping or cannot reach its broker.
	if len(rows.released) > 0 && failure != nil && (len(rows.published) == 0 || ctx.Err() != nil) {
		if err := f.store.WakeNamed(committing, namedLanes(rows.returned)); err != nil {
			f.log.Debug("cannot wake the dispatchers: their next listing finds the rows", "error", err)
		}
	}
	if len(rows.published) == 0 && failure != nil {
		return len(rows.released), fmt.Errorf("publish %d tasks: %w", len(taken.Rows), failure)
	}
	if n := len(rows.refused); n > 0 {
		f.log.Warn("tasks not enqueued", "queue", f.name, "count", n,
			telemetry.OutboxID, telemetry.IDs(n, func(i int) string { return rows.refused[i] }), "error", email.MaskText(failure.Error()))
	}
	return len(rows.released), nil
}

// sortedRows are the rows of a batch by what is recorded for them.
type sortedRows struct {
	published []uuid.UUID
	released  []dispatch.Release
	returned  []dispatch.DueRow // the rows of released
	taskless  []uuid.UUID       // late retries that had no task when they were published
	refused   []string          // by the broker; they are among released
}

// sortRows sorts the rows of a batch by their results. leased rows become due again without a release.
func sortRows(rows []dispatch.DueRow, results []result, leased bool) (s sortedRows) {
	for i, row := range rows {
		switch results[i] {
		case enqueued, replaced, alreadyQueued:
			s.published = append(s.published, row.ID)
			if row.HadTask && results[i] == enqueued {
				s.taskless = append(s.taskless, row.ID)
			}
		case busy:
			s.release(row, dispatch.Release{Delay: busyPause})
		case refused:
			s.refused = append(s.refused, row.ID.String())
			s.release(row, dispatch.Release{Delay: busyPause, NextAt: row.NextAt})
		case unconfirmed:
			if !leased {
				s.release(row, dispatch.Release{NextAt: row.NextAt})
			}
		case notSent:
			s.release(row, dispatch.Release{NextAt: row.NextAt})
		}
	}
	if len(s.published) == 0 && len(rows) > 1 { // all rows failed: the broker is failing, not the rows
		for i := range s.released {
			s.released[i].Delay = 0
		}
	}
	return s
}

func (s *sortedRows) release(row dispatch.DueRow, r dispatch.Release) {
	r.ID = row.ID
	s.released, s.returned = append(s.released, r), append(s.returned, row)
}

// namedLanes returns the lanes of rows, each with its earliest row's next_at.
func namedLanes(rows []dispatch.DueRow) (lanes []lanestore.Named) {
	from := make(map[int64]time.Time)
	for _, row := range rows {
		if earliest, known := from[row.LaneID]; !known || row.NextAt.Before(earliest) {
			from[row.LaneID] = row.NextAt
		}
	}
	for id, at := range from {
		lanes = append(lanes, lanestore.Named{ID: id, From: at})
	}
	return lanes
}

// countLost counts and logs retries whose task no longer existed. Other late retries still had a task, which was replaced, or
// their task ran between take and publish, and a worker has finished the email.
func (f *feeder) countLost(ctx context.Context, takenAt time.Time, taskless []uuid.UUID) {
	if len(taskless) == 0 {
		return
	}
	n, err := f.store.StillTaken(ctx, takenAt, taskless)
	if err != nil {
		f.log.Warn("cannot count lost tasks", "queue", f.name, "count", len(taskless), "error", err)
		return
	}
	if n > 0 {
		f.metrics.lost.Add(float64(n))
		f.log.Warn("retries whose task was lost were enqueued again", "queue", f.name, "count", n)
	}
}
