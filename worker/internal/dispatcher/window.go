package dispatcher

import (
	"context"
	"encoding/json"
	"math"
	"sync/atomic"
	"time"

	"email-gateway/shared/store/process"
)

const (
	windowInterval = 2 * time.Second
	// windowSeconds is the window in seconds of the send rate. It is the longest delay of an idle tenant's email because of
	// other tenants, which must be less than a second including the dispatcher's round, and how long workers have tasks if all
	// dispatchers are down.
	windowSeconds = 0.75
)

// window is the maximum number of tasks on a queue, in all states. All dispatchers share it: each reserves room for the tasks
// that it will publish.
type window struct {
	outbox      Outbox
	concurrency int
	sendRate    float64
	alive       func([]process.Status, error) // receives the process statuses
	size        atomic.Int64
}

func newWindow(outbox Outbox, concurrency int, sendRate float64, alive func([]process.Status, error)) *window {
	w := &window{outbox: outbox, concurrency: concurrency, sendRate: sendRate, alive: alive}
	w.size.Store(windowSize(concurrency, sendRate))
	return w
}

// Size returns the current window.
func (w *window) Size() int { return int(w.size.Load()) }

// measure reads the last reports of the workers. During a database outage it keeps the window; the feeders log the outage.
func (w *window) measure(ctx context.Context) (more bool, err error) {
	statuses, err := w.outbox.ProcessStatuses(ctx)
	w.alive(statuses, err)
	if err != nil {
		return false, nil
	}
	concurrency, sendRate := capacity(statuses)
	if concurrency == 0 {
		concurrency = w.concurrency
	}
	if sendRate == 0 {
		sendRate = w.sendRate
	}
	w.size.Store(windowSize(concurrency, sendRate))
	return false, nil
}

// capacity returns the total concurrency of the live workers, and the send rate of their account, which they share.
func capacity(statuses []process.Status) (concurrency int, sendRate float64) {
	for _, s := range statuses {
		var said struct {
			Concurrency int     `json:"concurrency"`
			SendRate    float64 `json:"sendRate"`
		}
		if s.Service != "worker" || !s.Live() || json.Unmarshal(s.Details, &said) != nil {
			continue
		}
		concurrency += max(0, said.Concurrency)
		sendRate = max(sendRate, said.SendRate)
	}
	return concurrency, sendRate
}

// windowSize returns a window that has a task for each worker goroutine when it finishes one, and that allows the full send
// rate.
func windowSize(concurrency int, sendRate float64) int64 {
	return max(2*int64(concurrency), int64(math.Ceil(windowSeconds*sendRate)), 1)
}
