package webhook

import (
	"context"
	"sync"
	"time"
)

// slow is the duration from which a response counts as slow, which lowers the width.
const slow = 2 * time.Second

// width limits the requests in flight to one endpoint by the endpoint's health: an endpoint that hangs or fails has one
// request in flight, so it takes one slot.
type width struct {
	most int

	mu     sync.Mutex
	freed  *sync.Cond
	limit  int
	active int
}

func newWidth(start, most int) *width {
	w := &width{most: most, limit: start}
	w.freed = sync.NewCond(&w.mu)
	return w
}

// enter waits until one more request may be in flight. It returns false if ctx has ended.
func (w *width) enter(ctx context.Context) bool {
	defer context.AfterFunc(ctx, func() {
		w.mu.Lock() // the waiter must not miss the broadcast between its check and its wait
		defer w.mu.Unlock()
		w.freed.Broadcast()
	})()
	w.mu.Lock()
	defer w.mu.Unlock()
	for ctx.Err() == nil && w.active >= w.limit {
		w.freed.Wait()
	}
	if ctx.Err() != nil {
		return false
	}
	w.active++
	return true
}

func (w *width) leave() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.active--
	w.freed.Broadcast()
}

// adapt adjusts the limit after an attempt.
func (w *width) adapt(o Outcome) {
	if !o.Delivered || o.Took > slow {
		w.narrow()
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.limit = min(w.limit+1, w.most)
	w.freed.Broadcast()
}

// narrow limits the endpoint to one request in flight.
func (w *width) narrow() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.limit = 1
}

// troubled reports whether the last attempt failed or was slow.
func (w *width) troubled() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.limit == 1
}
