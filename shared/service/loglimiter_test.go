package service_test

import (
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"email-gateway/shared/service"
)

// Of what happens ten times a second, one line is logged at once and then one in 30 s, which counts the others.
func TestLogLimiter(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var limiter service.LogLimiter
		lines, counted := 0, 0
		for range 10 * 60 {
			omitted, logged := limiter.Allow("no key")
			if logged {
				lines++
				counted += omitted + 1
			}
			if _, other := limiter.Allow("no storage"); other != logged {
				t.Fatalf("another cause at the same times: logged %t, want %t", other, logged)
			}
			<-time.After(100 * time.Millisecond)
		}
		if lines != 2 || counted != 301 {
			t.Errorf("%d lines that count %d, want 2 and 301", lines, counted)
		}
	})
}

// Causes without number, such as texts that contain ids, use neither more memory nor more lines.
func TestLogLimiter_ManyCauses(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var limiter service.LogLimiter
		lines := func() (n int) {
			for i := range 10_000 {
				if _, ok := limiter.Allow(strconv.Itoa(i)); ok {
					n++
				}
			}
			return n
		}
		if n := lines(); n > 101 {
			t.Errorf("%d lines", n)
		}
		<-time.After(time.Minute)
		if _, ok := limiter.Allow("new"); !ok {
			t.Error("a new cause is not logged when the old ones are over")
		}
	})
}
