package dispatcher

import (
	"context"
	"slices"
	"time"

	"email-gateway/shared/store/dispatch"
)

// liveLanes are the lanes of one queue that may still have due rows. Only the queue's feeder uses them; the methods that report
// a batch may be called concurrently.
type liveLanes struct {
	queue      string
	lanes      *lanes
	all        []liveLane // ordered by company
	until      time.Time  // when they must be read again
	more       bool       // after the last batches they may have more due rows
	roundRobin roundRobin
}

// refresh reloads the live lanes when they are no longer valid, and otherwise adds the lanes that became live since the last
// call.
func (l *liveLanes) refresh(ctx context.Context) (err error) {
	if len(l.all) == 0 || time.Now().After(l.until) {
		l.all, l.until, err = l.lanes.live(ctx, l.queue)
		return err
	}
	added, breakerOpen, err := l.lanes.added(ctx, l.queue)
	switch {
	case err != nil:
		return err
	case breakerOpen:
		l.all = nil
		return nil
	}
	known := len(l.all)
	for _, lane := range added {
		if i, found := slices.BinarySearchFunc(l.all[:known], lane, liveLane.compare); found {
			l.all[i] = lane // with its new lower bound
		} else {
			l.all = append(l.all, lane)
		}
	}
	if len(l.all) > known {
		slices.SortFunc(l.all, liveLane.compare)
	}
	return nil
}

// remove removes the lanes that batches have drained.
func (l *liveLanes) remove(drained []map[int64]bool) {
	l.all = slices.DeleteFunc(l.all, func(lane liveLane) bool {
		return slices.ContainsFunc(drained, func(lanes map[int64]bool) bool { return lanes[lane.id] })
	})
}

// took records how many rows a batch took from each of the chosen lanes.
func (l *liveLanes) took(chosen []laneShare, rows map[int64]int) {
	l.lanes.schedule.took(l.queue, chosen, rows)
}

// recheck makes the next poll read lanes whose rows may have been released.
func (l *liveLanes) recheck(chosen []laneShare) { l.lanes.schedule.recheck(l.queue, chosen) }

// released records that rows were returned to their lanes.
func (l *liveLanes) released(rows []dispatch.DueRow) { l.lanes.schedule.lower(rows) }

// delayPoll delays the next poll of all lanes in proportion to the rows that a batch took.
func (l *liveLanes) delayPoll(rows int) { l.lanes.taken.Add(int64(rows)) }
