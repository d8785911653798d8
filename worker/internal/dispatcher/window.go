package dispatcher

import (
	"cmp"
	"context"
	"encoding/json"
	"math"
	"sync/atomic"
	"time"

	"email-gateway/shared/store/process"
)

const (
	windowInterval = 2 * time.Second
	// windowSeconds is the window in seconds of the send rate, besides the emails in flight. It is how long an idle tenant's email
	// waits because of other tenants, which must be less than a second including the dispatcher's round, and how long workers have
	// tasks if all dispatchers are down. If fewer emails are in flight than the workers report, an email waits
	// up to half a latency longer: the reported number contains that headroom.
	windowSeconds = 0.75
)

// statusStore reads what the processes report about themselves.
type statusStore interface {
	ProcessStatuses(ctx context.Context) ([]process.Status, error)
}

// window is the maximum number of tasks on a queue, in all states. All dispatchers share it: each reserves room for the tasks
// that it will publish.
type window struct {
	store    statusStore
	sendRate float64                       // while no worker reports one
	alive    func([]process.Status, error) // receives the process statuses
	size     atomic.Int64
}

func newWindow(store statusStore, sendRate float64, alive func([]process.Status, error)) *window {
	w := &window{store: store, sendRate: sendRate, alive: alive}
	w.size.Store(windowSize(0, sendRate))
	return w
}

// Size returns the current window.
func (w *window) Size() int { return int(w.size.Load()) }

// measure reads the last reports of the workers. During a database outage it keeps the window; the feeders log the outage.
func (w *window) measure(ctx context.Context) (more bool, err error) {
	statuses, err := w.store.ProcessStatuses(ctx)
	w.alive(statuses, err)
	if err != nil {
		return false, nil
	}
	needed, sendRate := capacity(statuses)
	w.size.Store(windowSize(needed, cmp.Or(sendRate, w.sendRate)))
	return false, nil
}

// capacity returns how many emails in flight the live workers need together, and the send rate of their account. Each uses an
// equal part of the rate.
func capacity(statuses []process.Status) (needed, sendRate float64) {
	var all []workerReport
	for _, s := range statuses {
		var r workerReport
		if s.Service != "worker" || !s.Live() || json.Unmarshal(s.Details, &r) != nil {
			continue
		}
		all = append(all, r)
		sendRate = max(sendRate, r.SendRate)
	}
	for _, r := range all {
		needed += r.needed(sendRate / float64(len(all)))
	}
	return needed, sendRate
}

// workerReport is what a worker reports about itself.
type workerReport struct {
	NeededMS    *float64 `json:"neededMs"`
	Concurrency float64  `json:"concurrency"`
	SendRate    float64  `json:"sendRate"`
}

// needed returns how many emails in flight the worker needs for this part of the rate.
func (r workerReport) needed(rate float64) float64 {
	if r.NeededMS == nil { // a worker of the previous release
		return max(0, r.Concurrency)
	}
	return max(0, *r.NeededMS) / 1000 * rate
}

// windowSize returns a window for the emails in flight, and for the tasks that wait for the rate. It allows the full send rate.
// The number of workers does not change it.
func windowSize(needed, sendRate float64) int64 {
	return max(int64(math.Ceil(windowSeconds*sendRate+needed)), 1)
}
