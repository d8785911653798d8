package asynqueue

import (
	"context"
	"errors"
	"sync"

	"github.com/hibiken/asynq"
)

// errNoWorker is the result of a task for which no worker is free when the consumer stops.
var errNoWorker = errors.New("no free worker while the consumer stops")

// workers is a pool of goroutines that run the handler, up to the maximum number of active tasks. asynq starts a goroutine for
// each task, whose stack would be copied each time it grows until the provider call, which takes 7 % of the CPU time of the
// worker. The stacks of pooled goroutines have grown already.
type workers struct {
	many  int
	run   asynq.HandlerFunc
	tasks chan assigned
	over  chan struct{}
	busy  sync.WaitGroup

	mu      sync.Mutex
	started int // at most many
	stopped bool
}

// assigned is a task for a worker. done has a buffer for the result, which is not received if asynq has abandoned the task
// because its lease was lost.
type assigned struct {
	ctx  context.Context
	task *asynq.Task
	done chan error
}

func newWorkers(many int, run asynq.HandlerFunc) *workers {
	return &workers{many: max(many, 1), run: run, tasks: make(chan assigned), over: make(chan struct{})}
}

// grow starts one more goroutine, up to many.
func (w *workers) grow() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.started < w.many && !w.stopped {
		w.started++
		w.busy.Go(w.work)
	}
}

func (w *workers) work() {
	for {
		select {
		case t := <-w.tasks:
			t.done <- w.run(t.ctx, t.task)
		case <-w.over:
			return
		}
	}
}

// ProcessTask implements asynq.Handler. It returns when a worker has finished the task; the end of ctx has an effect only until
// a worker has taken it.
func (w *workers) ProcessTask(ctx context.Context, task *asynq.Task) error {
	t := assigned{ctx: ctx, task: task, done: make(chan error, 1)}
	select {
	case w.tasks <- t:
		return <-t.done
	default:
		w.grow()
	}
	select {
	case w.tasks <- t:
		return <-t.done
	case <-ctx.Done(): // asynq has abandoned the task: another worker process will receive it
		return context.Cause(ctx)
	case <-w.over:
		return errNoWorker
	}
}

// stop waits until each worker has finished its task, including tasks that asynq has abandoned: a process that was frozen for
// longer than the lease must still record the answer of SES.
func (w *workers) stop() {
	w.mu.Lock()
	w.stopped = true
	w.mu.Unlock()
	close(w.over)
	w.busy.Wait()
}
