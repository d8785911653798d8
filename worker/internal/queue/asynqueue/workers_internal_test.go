package asynqueue

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"github.com/hibiken/asynq"
)

// At most as many tasks run as there are workers, each gets its own result, and a task for which no
// worker becomes free gets an error.
func TestWorkers(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		finish := make(chan struct{})
		var working atomic.Int32
		h := newWorkers(2, func(_ context.Context, task *asynq.Task) error {
			working.Add(1)
			<-finish
			return errors.New(task.Type())
		})
		results := make(map[string]error)
		var mu sync.Mutex
		var wg sync.WaitGroup
		for _, name := range []string{"a", "b", "c"} {
			wg.Go(func() {
				err := h.ProcessTask(t.Context(), asynq.NewTask(name, nil))
				mu.Lock()
				defer mu.Unlock()
				results[name] = err
			})
			synctest.Wait()
		}
		if n := working.Load(); n != 2 {
			t.Errorf("%d tasks with two workers", n)
		}
		lost, lose := context.WithCancel(t.Context())
		wg.Go(func() {
			if err := h.ProcessTask(lost, asynq.NewTask("d", nil)); !errors.Is(err, context.Canceled) {
				t.Errorf("a task that asynq abandoned returned %v", err)
			}
		})
		synctest.Wait()
		lose()
		synctest.Wait()
		stopped := false
		wg.Go(func() { h.stop(); stopped = true })
		synctest.Wait()
		if stopped {
			t.Error("stopped with running tasks")
		}
		close(finish)
		wg.Wait()
		for _, name := range []string{"a", "b"} {
			if err := results[name]; err == nil || err.Error() != name {
				t.Errorf("%s returned %v", name, err)
			}
		}
		if !errors.Is(results["c"], errNoWorker) {
			t.Errorf("c returned %v", results["c"])
		}
	})
}
