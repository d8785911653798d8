package webhook

import (
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/google/uuid"

	webhookstore "email-gateway/shared/store/webhook"
)

// The first and the longest wait of an endpoint that could not be served. The longest is below the window of the alert
// WebhooksNotServed, 5 min.
const (
	firstFailureWait = time.Second
	maxFailureWait   = time.Minute
)

// failures has the endpoints that this process could not serve because of a fault of the gateway, such as a missing key,
// and how long each waits. They occupy no place meanwhile.
type failures struct {
	first time.Duration

	mu        sync.Mutex
	endpoints map[uuid.UUID]failurePause
}

type failurePause struct {
	wait  time.Duration
	until time.Time
}

func newFailures() *failures {
	return &failures{first: firstFailureWait, endpoints: map[uuid.UUID]failurePause{}}
}

// add returns how long the endpoint waits: twice as long as after its last failure.
func (f *failures) add(endpoint uuid.UUID) time.Duration {
	f.mu.Lock()
	defer f.mu.Unlock()
	wait := f.first
	if last, again := f.endpoints[endpoint]; again {
		wait = min(2*last.wait, maxFailureWait)
	}
	f.endpoints[endpoint] = failurePause{wait: wait, until: time.Now().Add(wait)}
	return wait
}

// remove forgets the failures of an endpoint that was served.
func (f *failures) remove(endpoint uuid.UUID) {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.endpoints, endpoint)
}

// count returns how many endpoints a listing contains in addition to those that may be served.
func (f *failures) count() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.endpoints)
}

// without returns the endpoints that do not wait. It forgets those that were not served long after their wait: another process
// serves them, or they are deleted.
func (f *failures) without(work []webhookstore.Work) []webhookstore.Work {
	f.mu.Lock()
	defer f.mu.Unlock()
	now := time.Now()
	maps.DeleteFunc(f.endpoints, func(_ uuid.UUID, e failurePause) bool { return now.Sub(e.until) > maxFailureWait })
	return slices.DeleteFunc(work, func(w webhookstore.Work) bool { return f.endpoints[w.EndpointID].until.After(now) })
}
