package maintenance_test

import (
	"context"
	"log/slog"
	"sync/atomic"
	"testing"

	"github.com/google/uuid"

	"email-gateway/shared/email"
	"email-gateway/shared/store/storetest"
	"email-gateway/shared/waittest"
	"email-gateway/worker/internal/maintenance"
)

// taskQueue has a task that is active at the first call and archived afterwards.
type taskQueue struct{ asked atomic.Int64 }

func (q *taskQueue) RemoveTasks(_ context.Context, queue string, ids []string, _ bool) (removed, kept []bool, err error) {
	removed, kept = make([]bool, len(ids)), make([]bool, len(ids))
	if queue == email.QueueNormal {
		first := q.asked.Add(1) == 1
		removed[0], kept[0] = !first, first
	}
	return removed, kept, nil
}

// A task counts as removed once the queue no longer has it, also if the email has another
// recipient.
func TestTaskRemover_Waits(t *testing.T) {
	t.Parallel()
	d, queue := storetest.New(t), &taskQueue{}
	execute(t, d, `INSERT INTO erased_tasks (outbox_id, erasure_id, company_id, final) VALUES ('`+uuid.NewString()+`', gen_random_uuid(), gen_random_uuid(), false)`)
	run(t, maintenance.NewTaskRemover(maintenance.TaskRemoverParams{Log: slog.New(slog.DiscardHandler), Store: d.Store, Queue: queue}))
	waittest.Until(t, "the task is done with", func() bool { return number(t, d, `SELECT count(*) FROM erased_tasks WHERE done_at IS NOT NULL`) == 1 })
	if number(t, d, `SELECT count(*) FROM erased_tasks WHERE found`) != 1 {
		t.Error("it counts as removed while a worker has the task")
	}
}
