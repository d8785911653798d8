package email

import "time"

// DelayAt is Delay with the jitter that u selects.
func (b Backoff) DelayAt(n int, u float64) time.Duration { return b.delayAt(n, u) }

// OutageDelayAt is OutageDelay with the jitter that u selects.
func (b Backoff) OutageDelayAt(n int, u float64) time.Duration { return b.outageDelayAt(n, u) }
