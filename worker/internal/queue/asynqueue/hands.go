package asynqueue

import (
	"context"
	"errors"
	"sync"

	"github.com/hibiken/asynq"
)

// errNoHand answers a task that finds all goroutines busy when the consumer stops.
var errNoHand = errors.New("no hand is free, and the consumer stops")

// hands are the goroutines that run the handler, up to the largest number of tasks in work. asynq
// begins one for each task, whose stack is copied each time that it grows on the way to the
// provider's call: 7 % of the worker's processor time. Those of the hands have grown already.
type hands struct {
	many  int
	run   asynq.HandlerFunc
	tasks chan handed
	over  chan struct{}
	busy  sync.WaitGroup

	mu      sync.Mutex
	started int // of many
	stopped bool
}

// handed is a task on its way to a goroutine. done has room for its result: nobody may be there
// any more to take it, since asynq lets go of a task whose lease is lost.
type handed struct {
	ctx  context.Context
	task *asynq.Task
	done chan error
}

func newHands(many int, run asynq.HandlerFunc) *hands {
	return &hands{many: max(many, 1), run: run, tasks: make(chan handed), over: make(chan struct{})}
}

// grow starts one more goroutine, if there may be more.
func (h *hands) grow() {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.started < h.many && !h.stopped {
		h.started++
		h.busy.Go(h.work)
	}
}

func (h *hands) work() {
	for {
		select {
		case t := <-h.tasks:
			t.done <- h.run(t.ctx, t.task)
		case <-h.over:
			return
		}
	}
}

// ProcessTask implements asynq.Handler: it returns when a hand is done with the task. It
// watches ctx only until a hand has it.
func (h *hands) ProcessTask(ctx context.Context, task *asynq.Task) error {
	t := handed{ctx: ctx, task: task, done: make(chan error, 1)}
	select {
	case h.tasks <- t:
		return <-t.done
	default:
		h.grow()
	}
	select {
	case h.tasks <- t:
		return <-t.done
	case <-ctx.Done(): // asynq has let go of the task: somebody else gets it
		return context.Cause(ctx)
	case <-h.over:
		return errNoHand
	}
}

// stop ends each when it has finished what it holds, which may be a task that asynq has let
// go of: a process that was frozen for longer than the lease still has SES's answer to write
// down.
func (h *hands) stop() {
	h.mu.Lock()
	h.stopped = true
	h.mu.Unlock()
	close(h.over)
	h.busy.Wait()
}
