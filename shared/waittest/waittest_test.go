package waittest_test

import (
	"testing"
	"testing/synctest"
	"time"

	"email-gateway/shared/waittest"
)

// A wait of a minute takes some 150 checks, and ends at most half a second late.
func TestUntil(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		start, checks := time.Now(), 0
		waittest.Until(t, "a minute is over", func() bool {
			checks++
			return time.Since(start) >= time.Minute
		})
		if waited := time.Since(start); waited > time.Minute+500*time.Millisecond || checks > 200 {
			t.Errorf("%d checks in %s", checks, waited)
		}
	})
}
