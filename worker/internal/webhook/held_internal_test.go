package webhook

import (
	"testing"
	"time"

	"email-gateway/worker/internal/elapsed/elapsedtest"
)

// After its machine was suspended, a worker attempts no event of a page whose lease may be over: another worker may
// have delivered the page and later events.
func TestHeld_Suspended(t *testing.T) {
	t.Parallel()
	for length, want := range map[time.Duration]bool{0: true, leaseTime / 6: true, leaseTime - leaseMargin: false, time.Hour: false} {
		h := newHeld(elapsedtest.BeforeSuspension(time.Now(), length))
		if got := h.mayAttempt(); got != want {
			t.Errorf("suspended for %s: attempts %t, want %t", length, got, want)
		}
	}
}
