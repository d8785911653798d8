package pace

import "time"

// The rate after a throttling answer. It is halved at once, returns to where it was cut
// within regainTime, ever more slowly, and from there to the full rate within recovery,
// ever faster: so it spends most of the time a little below the rate that the provider
// really accepts, and finds out soon when there is more.
const (
	cutFactor  = 0.5
	regainTime = 30 * time.Second
	recovery   = time.Minute
	// cutPause is the least time between two cuts. Providers measure the rate over about a
	// second: until it is over they go on refusing because of what came before the cut.
	cutPause = time.Second
	// leastRate is where cutting ends: the provider must be asked to find out that it
	// accepts more.
	leastRate = 1
)

// cut is the last time that the provider throttled.
type cut struct {
	at    time.Time // on this process's clock; zero = never
	from  float64   // the rate at that time
	stamp string    // at, on Redis's clock, as Redis keeps it; "" = Redis does not know of it
}

// rate is the rate to send at now, if the account allows full.
func (c cut) rate(full float64, now time.Time) float64 {
	since := now.Sub(c.at)
	if c.at.IsZero() || since >= recovery {
		return full
	}
	ceiling := min(c.from, full)
	low := min(max(c.from*cutFactor, leastRate), full)
	if since < regainTime {
		missing := 1 - max(since.Seconds(), 0)/regainTime.Seconds()
		return max(ceiling-(ceiling-low)*missing*missing*missing, low)
	}
	beyond := (since - regainTime).Seconds() / (recovery - regainTime).Seconds()
	return ceiling + (full-ceiling)*beyond*beyond*beyond
}
