package inflight

import (
	"math"
	"time"
)

// The limit follows Little's law: to send at the rate, rate × latency emails must be in flight.
const (
	// headroom and spare allow for varying latencies, and for other workers that send less than their share of the
	// rate.
	headroom = 1.5
	spare    = 4
	// growth limits one step up. A step is measured before it is kept, so it must be large enough to show in the
	// throughput.
	growth = 4
	// minGain is the required gain of a step up: four times as many emails in flight must send 1.3 times as many per
	// second. Otherwise the bottleneck is the machine and not the provider's latency, and more emails in flight only
	// wait for each other.
	minGain = 0.1
	// changed is the growth of the latency during a trial, relative to that of the limit, above which the trial is
	// inconclusive. An overloaded machine rarely sends less than half as much.
	changed = 2
	// restRounds is the pause in rounds after a step without gain: 10 s or longer.
	restRounds = 40
	// shrink is the divisor by which one round lowers the limit: the limit halves in 11 s.
	shrink = 64
)

// sample is a worker's measurement of one round.
type sample struct {
	rate    float64       // maximum emails per second of this worker
	latency time.Duration // mean time from the receipt of a task to its recorded result; 0 = none was sent
	sent    float64       // emails per second
	atLimit bool          // the limit was reached for most of the round
}

// rule is the state of the limit.
type rule struct {
	min, max int
	limit    int

	from   int           // the limit before the step up that is on trial; 0 = no trial
	before float64       // throughput before the step
	lasted time.Duration // latency before the step
	rest   int           // rounds until the next step up
}

// next returns the rule's state after a round.
func (r rule) next(s sample) rule {
	if r.from > 0 {
		from, least := r.from, r.before*(1+minGain*(float64(r.limit)/float64(r.from)-1))
		r.from = 0
		if s.atLimit && s.sent < least {
			// If the step gained nothing, the latency has grown like the limit. If it has grown much more, the provider
			// has become slower meanwhile, and the step may be tried again without a pause.
			if s.latency <= changed*r.lasted*time.Duration(r.limit)/time.Duration(from) {
				r.rest = restRounds
			}
			r.limit = from
			return r
		}
	}
	r.rest = max(r.rest-1, 0)
	if s.latency == 0 {
		return r
	}
	switch want := r.want(s); {
	case want < r.limit:
		r.limit = max(want, r.limit-max(1, r.limit/shrink))
	case want > r.limit && s.atLimit && r.rest == 0:
		r.from, r.before, r.lasted = r.limit, s.sent, s.latency
		r.limit = min(want, growth*r.limit)
	}
	return r
}

// want returns the limit that the rate needs at the measured latency.
func (r rule) want(s sample) int {
	emails := math.Ceil(s.rate*s.latency.Seconds()*headroom) + spare
	return int(min(max(emails, float64(r.min)), float64(r.max)))
}
