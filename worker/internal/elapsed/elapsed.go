// Package elapsed measures time that includes suspensions of the machine.
package elapsed

import "time"

// Since returns the time since then, negative before it, by the clock that shows more: the monotonic clock stands still while the
// machine is suspended, and the wall clock may be set back. Compare leases with it, which Postgres ends meanwhile.
func Since(then time.Time) time.Duration {
	now := time.Now()
	return max(now.Sub(then), now.Round(0).Sub(then.Round(0)))
}
