package webhook_test

import (
	"math/rand/v2"
	"net/http"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"email-gateway/worker/internal/webhook"
)

// The requests of a batch that was stopped do not use the interval, so the next batch begins at once.
func TestPace_Stopped(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const interval = 5 * time.Second
		waits := webhook.Pace(t.Context(), interval, true, true, true, false, true, false)
		for i, wait := range waits[:5] {
			if wait != 0 {
				t.Errorf("request %d waits %v", i, wait)
			}
		}
		if waits[5] != interval {
			t.Errorf("the request after another one waits %v", waits[5])
		}
	})
}

// The rate of requests to an endpoint that answers 503 to every fifth request at any rate stays high.
func TestLimits_ThrottledByChance(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		chance, start := rand.New(rand.NewPCG(1, 1)), time.Now()
		var mu sync.Mutex
		const requests = 1000
		webhook.Limit(t.Context(), requests, 5*time.Millisecond, func() int {
			mu.Lock()
			defer mu.Unlock()
			if chance.IntN(5) == 0 {
				return http.StatusServiceUnavailable
			}
			return http.StatusOK
		})
		took := time.Since(start)
		t.Logf("%d requests in %v", requests, took)
		if took > 50*time.Second {
			t.Errorf("%d requests in %v", requests, took)
		}
	})
}
