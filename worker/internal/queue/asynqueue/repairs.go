package asynqueue

import (
	"sync"
	"sync/atomic"
)

// repairs counts what was put right on the queues since somebody asked.
type repairs struct {
	evicted, replaced, strays, restored atomic.Int64
	seen                                sync.Map // names of queues that stood in asynq's registry once
}

// The names under which Repairs tells what was done.
const (
	TaskEvicted   = "task_evicted"        // Evict removed what was left of a task
	TaskReplaced  = "task_replaced"       // Publish took the place of one that nobody would have taken
	StrayRemoved  = "stray_removed"       // RemoveStrays took an id off its list
	QueueRestored = "queue_name_restored" // Reserve put a queue's name back into asynq's registry
)

// named takes note that a queue's name stands in asynq's registry, just added or not. The
// first time it is added nothing was lost.
func (r *repairs) named(queue string, added bool) {
	if _, before := r.seen.LoadOrStore(queue, true); before && added {
		r.restored.Add(1)
	}
}

// Repairs says what was put right since it was asked last, by the names above; what was
// not needed is left out.
func (p *Publisher) Repairs() map[string]int {
	done := make(map[string]int)
	for name, n := range map[string]*atomic.Int64{
		TaskEvicted: &p.repairs.evicted, TaskReplaced: &p.repairs.replaced,
		StrayRemoved: &p.repairs.strays, QueueRestored: &p.repairs.restored,
	} {
		if n := n.Swap(0); n > 0 {
			done[name] = int(n)
		}
	}
	return done
}
