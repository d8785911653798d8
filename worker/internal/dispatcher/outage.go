package dispatcher

import (
	"log/slog"
	"sync"
	"time"

	"email-gateway/shared/email"
)

// outage logs the beginning and the end of a database or broker outage once for all queues.
type outage struct {
	log *slog.Logger

	mu      sync.Mutex
	failing map[string]bool // by queue
	since   time.Time
}

func newOutage(log *slog.Logger) *outage {
	return &outage{log: log, failing: make(map[string]bool)}
}

func (o *outage) begin(queue string, err error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if len(o.failing) == 0 {
		o.since = time.Now()
		o.log.Error("dispatching interrupted", "queue", queue, "error", email.MaskText(err.Error()))
	}
	o.failing[queue] = true
}

func (o *outage) end(queue string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if !o.failing[queue] {
		return
	}
	delete(o.failing, queue)
	if len(o.failing) == 0 {
		o.log.Info("dispatching resumed", "interrupted", time.Since(o.since).Round(time.Millisecond).String())
	}
}
