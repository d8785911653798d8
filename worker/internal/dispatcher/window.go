package dispatcher

import (
	"context"
	"encoding/json"
	"math"
	"sync/atomic"
	"time"

	"email-gateway/shared/email"
	"email-gateway/shared/store"
)

const (
	windowInterval = 2 * time.Second
	// windowSeconds is the window in seconds of the send rate: the longest delay of an idle
	// tenant's email because of others, which has to stay below a second together with the dispatcher's round, and how long
	// workers have tasks if all dispatchers are down.
	windowSeconds = 0.75
)

const (
	// recipientsWindow is the window of the recipients queue: ten of the consumer's batches, so
	// that the consumer never waits, and little data for a broker.
	recipientsWindow = 10_000
	// mailingsWindow is how many mailing jobs each dispatcher keeps ready on their queue. A job
	// takes up to 3 s, and lanes are served round-robin here, not on the queue: a company's mailing
	// waits only for these jobs and the active ones, however many another company has.
	mailingsWindow = 4
)

// bulkWindow is the window of a bulk queue.
func bulkWindow(queue string) int {
	if queue == email.QueueMailings {
		return mailingsWindow
	}
	return recipientsWindow
}

// window is how many tasks a queue should hold, in all states. All dispatchers share it: each
// reserves what it is about to publish.
type window struct {
	outbox      Outbox
	concurrency int
	sendRate    float64
	alive       func([]store.ProcessStatus) // receives the process statuses
	size        atomic.Int64
}

func newWindow(outbox Outbox, concurrency int, sendRate float64, alive func([]store.ProcessStatus)) *window {
	w := &window{outbox: outbox, concurrency: concurrency, sendRate: sendRate, alive: alive}
	w.size.Store(windowSize(concurrency, sendRate))
	return w
}

// Size returns the current window.
func (w *window) Size() int { return int(w.size.Load()) }

// measure reads what the workers reported last. During a database outage the window stays as it is;
// the feeders report the outage.
func (w *window) measure(ctx context.Context) (more bool, err error) {
	statuses, err := w.outbox.ProcessStatuses(ctx)
	if err != nil {
		return false, nil
	}
	w.alive(statuses)
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

// capacity returns the live workers' total concurrency, and the send rate, which is their account's
// and shared.
func capacity(statuses []store.ProcessStatus) (concurrency int, sendRate float64) {
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

// windowSize lets each worker find a task whenever it ends one, and lets the full send rate be
// used.
func windowSize(concurrency int, sendRate float64) int64 {
	return max(2*int64(concurrency), int64(math.Ceil(windowSeconds*sendRate)), 1)
}
