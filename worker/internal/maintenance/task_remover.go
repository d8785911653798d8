package maintenance

import (
	"context"
	"log/slog"
	"time"

	"github.com/google/uuid"

	"email-gateway/shared/email"
	"email-gateway/shared/service"
	"email-gateway/shared/store/dispatch"
)

const (
	// removeInterval is the interval at which tasks of erased persons are removed from Redis.
	removeInterval = time.Second
	// removeBatch bounds one script, which takes Redis a millisecond.
	removeBatch = 200
)

// TaskStore has the database operations of the TaskRemover.
type TaskStore interface {
	ErasedTasks(ctx context.Context, limit int) ([]dispatch.ErasedTask, error)
	TasksRemoved(ctx context.Context, ids, found []uuid.UUID) error
}

// TaskQueue removes tasks from a queue. For each id it returns whether a task was removed, and whether one remains.
type TaskQueue interface {
	RemoveTasks(ctx context.Context, queue string, ids []string, all bool) (removed, kept []bool, err error)
}

// TaskRemover removes the queued tasks of emails whose recipient was erased, because gatewayctl person erase has no access to
// the queue. It searches each queue for each id: the priority of an erased email is unknown once its row is purged.
type TaskRemover struct {
	*service.Loop
	params TaskRemoverParams
}

// TaskRemoverParams configure a TaskRemover.
type TaskRemoverParams struct {
	Log   *slog.Logger
	Store TaskStore
	Queue TaskQueue
}

// NewTaskRemover makes a TaskRemover that is not running yet.
func NewTaskRemover(p TaskRemoverParams) *TaskRemover {
	r := &TaskRemover{params: p}
	r.Loop = service.NewLoop(service.LoopParams{Log: p.Log, Interval: removeInterval, RunOnce: r.runOnce})
	return r
}

// runOnce removes the next tasks. No transaction is open during the Redis calls: two dispatchers
// may do the same work.
func (r *TaskRemover) runOnce(ctx context.Context) (more bool, err error) {
	tasks, err := r.params.Store.ErasedTasks(ctx, removeBatch)
	if err != nil || len(tasks) == 0 {
		return false, err
	}
	var done, found []uuid.UUID
	for _, final := range []bool{true, false} {
		var ids []string
		for _, t := range tasks {
			if t.Final == final {
				ids = append(ids, t.ID.String())
			}
		}
		if len(ids) == 0 {
			continue
		}
		removed, kept := map[string]bool{}, map[string]bool{}
		for _, queue := range email.Queues() {
			was, stays, err := r.params.Queue.RemoveTasks(ctx, queue, ids, final)
			if err != nil {
				return false, err
			}
			for i, id := range ids {
				removed[id], kept[id] = removed[id] || was[i], kept[id] || stays[i]
			}
		}
		for _, id := range ids {
			// A worker has the task or will receive it, and then the queue deletes or archives it. A later round checks again.
			if kept[id] {
				continue
			}
			if done = append(done, uuid.MustParse(id)); removed[id] {
				found = append(found, uuid.MustParse(id))
			}
		}
	}
	if len(done) == 0 {
		return false, nil
	}
	if len(found) > 0 {
		r.params.Log.Info("tasks of erased emails removed", "count", len(found))
	}
	return len(done) == removeBatch, r.params.Store.TasksRemoved(ctx, done, found)
}
