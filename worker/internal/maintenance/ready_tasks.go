package maintenance

import (
	"context"
	"errors"

	"email-gateway/shared/store/dispatch"
)

// readyTasks has the ids of the tasks that wait for a worker, by queue, as read in this round. If workers are down these are
// nearly all tasks, and each lookup would scan the whole list of the queue. A queue that did not answer has a nil map.
type readyTasks map[string]map[string]bool

// without removes the emails whose task is ready, and those of queues that do not answer: in a cluster only one node may be
// down. The next round finds later changes.
func (t readyTasks) without(ctx context.Context, tasks Tasks, long []dispatch.LongEnqueued) (rest []dispatch.LongEnqueued, err error) {
	rest = make([]dispatch.LongEnqueued, 0, len(long))
	for _, e := range long {
		if _, listed := t[e.Queue]; !listed {
			ids, failed := tasks.Ready(ctx, e.Queue)
			err = errors.Join(err, failed)
			if t[e.Queue] = nil; failed == nil {
				t[e.Queue] = make(map[string]bool, len(ids))
			}
			for _, id := range ids {
				t[e.Queue][id] = true
			}
		}
		if ready := t[e.Queue]; ready != nil && !ready[e.ID.String()] {
			rest = append(rest, e)
		}
	}
	return rest, err
}
