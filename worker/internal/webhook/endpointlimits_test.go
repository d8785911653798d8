package webhook_test

import (
	"testing"
	"time"

	"email-gateway/worker/internal/webhook"
)

// The requests of a batch that was stopped do not use the interval, so the next batch begins at once.
func TestPace_Stopped(t *testing.T) {
	t.Parallel()
	const interval = 5 * time.Second
	waits := webhook.Pace(t.Context(), interval, true, true, true, false, true, false)
	for i, wait := range waits[:5] {
		if wait > interval/2 {
			t.Errorf("request %d waits %v", i, wait)
		}
	}
	if waits[5] < interval/2 {
		t.Errorf("the request after another one waits %v", waits[5])
	}
}
