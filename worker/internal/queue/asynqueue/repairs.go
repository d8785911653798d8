package asynqueue

import (
	"sync"
	"sync/atomic"
)

// repairCounts counts the repairs of the queues since the last call of Repairs.
type repairCounts struct {
	evicted, replaced, strays, restored atomic.Int64
	seen                                sync.Map // queue names seen in asynq's registry
}

// Actions reported by Repairs.
const (
	TaskEvicted   = "task_evicted"        // Evict removed a leftover
	TaskReplaced  = "task_replaced"       // Publish replaced a delayed task, or one that no worker would have taken
	StrayRemoved  = "stray_removed"       // RemoveStrays removed a list entry
	QueueRestored = "queue_name_restored" // Reserve restored a queue's name in asynq's registry
)

// named records that the name of a queue is in asynq's registry; added means that it was missing. The first addition is not a
// repair.
func (r *repairCounts) named(queue string, added bool) {
	if _, before := r.seen.LoadOrStore(queue, true); before && added {
		r.restored.Add(1)
	}
}

// Repairs returns the number of repairs by action since the last call, without zeros.
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
