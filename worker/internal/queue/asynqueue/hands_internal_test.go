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

// No more tasks are in work than there are hands, each is told its own result, and who
// waits for a hand that never comes is told so.
func TestHands(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		finish := make(chan struct{})
		var working atomic.Int32
		h := newHands(2, func(_ context.Context, task *asynq.Task) error {
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
			t.Errorf("%d tasks in the work of two hands", n)
		}
		lost, lose := context.WithCancel(t.Context())
		wg.Go(func() {
			if err := h.ProcessTask(lost, asynq.NewTask("d", nil)); !errors.Is(err, context.Canceled) {
				t.Errorf("a task that asynq let go of was told %v", err)
			}
		})
		synctest.Wait()
		lose()
		synctest.Wait()
		stopped := false
		wg.Go(func() { h.stop(); stopped = true })
		synctest.Wait()
		if stopped {
			t.Error("stopped with tasks in work")
		}
		close(finish)
		wg.Wait()
		for _, name := range []string{"a", "b"} {
			if err := results[name]; err == nil || err.Error() != name {
				t.Errorf("%s was told %v", name, err)
			}
		}
		if !errors.Is(results["c"], errNoHand) {
			t.Errorf("c was told %v", results["c"])
		}
	})
}
