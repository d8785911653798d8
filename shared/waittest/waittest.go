// Package waittest waits for conditions in tests.
package waittest

import (
	"iter"
	"testing"
	"time"
)

// Limit is longer than a condition takes on a busy machine.
const Limit = 3 * time.Minute

// Until waits until holds returns true. The test fails if that takes longer than Limit.
func Until(tb testing.TB, what string, holds func() bool) {
	tb.Helper()
	for waited := range Rounds() {
		if holds() {
			return
		}
		if waited > Limit {
			tb.Fatalf("timed out after %s waiting until %s", Limit, what)
		}
	}
}

// Rounds yields the time since the first round, again and again. The pause between rounds is an eighth of that time, at
// least 5 ms and at most 500 ms: a long wait takes few checks, whose processor time the programs under test need, and no
// wait becomes much longer than its condition takes.
func Rounds() iter.Seq[time.Duration] {
	return func(yield func(time.Duration) bool) {
		for start := time.Now(); yield(time.Since(start)); {
			<-time.After(min(max(time.Since(start)/8, 5*time.Millisecond), 500*time.Millisecond))
		}
	}
}
