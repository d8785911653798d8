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
	// windowSeconds of the send rate stand on a queue: it is how long a quiet tenant's
	// email waits at most because of others, and how long a dispatcher may be away before a
	// worker runs dry.
	windowSeconds = 1
)

const (
	// recipientsWindow is how many messages their queue holds: ten of the consumer's batches,
	// so that it never waits, and little for a broker to keep.
	recipientsWindow = 10_000
	// mailingsWindow is how many jobs of mailings are ready on their queue for each
	// dispatcher. A job takes up to 3 s, and lanes take turns here, not on the queue: the
	// mailing of a company waits for these and for those in work, however many another company
	// has.
	mailingsWindow = 4
)

// bulkWindow is how many messages a queue of bulk work holds.
func bulkWindow(queue string) int {
	if queue == email.QueueMailings {
		return mailingsWindow
	}
	return recipientsWindow
}

// window is how many tasks a queue should hold, whatever their state. All dispatchers fill
// it together: each reserves what it is about to publish.
type window struct {
	outbox      Outbox
	concurrency int
	sendRate    float64
	alive       func([]store.ProcessStatus) // is told who there is
	size        atomic.Int64
}

func newWindow(outbox Outbox, concurrency int, sendRate float64, alive func([]store.ProcessStatus)) *window {
	w := &window{outbox: outbox, concurrency: concurrency, sendRate: sendRate, alive: alive}
	w.size.Store(windowSize(concurrency, sendRate))
	return w
}

// Size is the window now.
func (w *window) Size() int { return int(w.size.Load()) }

// measure asks what the workers last said of themselves. When the database does not
// answer the window stays as it is; the feeders report the outage.
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

// capacity is what the live workers can do together: their concurrency adds up, the
// send rate is their account's, which they share.
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

// windowSize lets every worker find a task whenever it ends one, and the provider's
// rate be used in full.
func windowSize(concurrency int, sendRate float64) int64 {
	return max(2*int64(concurrency), int64(math.Ceil(windowSeconds*sendRate)), 1)
}
