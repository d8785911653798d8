package inflight

import (
	"math"
	"time"
)

// The rule for the limit follows Little's law: rate × latency emails are in flight at the rate.
const (
	// headroom and spare are for latencies that vary, and for other workers that send less than
	// their part of the rate.
	headroom = 1.5
	spare    = 4
	// growth bounds one step up. The next step is measured before it is kept, so a step must be
	// large enough to show in the throughput.
	growth = 4
	// leastGain is how much of a step up must show in the throughput: four times as many emails
	// in flight must send 1.3 times as many per second. Otherwise the machine is the limit, not
	// the provider's latency, and more emails in flight only wait for each other.
	leastGain = 0.1
	// changed is how many times more than the limit the latency must have grown during a trial for
	// the trial to say nothing. A machine that sends less the more it does at a time seldom sends half.
	changed = 2
	// restRounds is how long no step is tried after one that gained nothing: 10 s or longer.
	restRounds = 40
	// shrink is the part of the limit by which one round lowers it: half of it in 11 s.
	shrink = 64
)

// sample is what a worker measured in one round.
type sample struct {
	rate    float64       // emails per second that this worker may send
	latency time.Duration // mean time from an email's take to its recorded result; 0 = none was sent
	sent    float64       // emails per second
	full    bool          // the limit was reached for most of the round
}

// rule is the state of the limit.
type rule struct {
	least, most int
	limit       int

	from   int           // the limit before the last step up, while that is on trial; 0 = none is
	before float64       // the throughput before it
	lasted time.Duration // the latency before it
	rest   int           // rounds until the next step up may be tried
}

// next is the rule's state after a round.
func (r rule) next(s sample) rule {
	if r.from > 0 {
		from, least := r.from, r.before*(1+leastGain*(float64(r.limit)/float64(r.from)-1))
		r.from = 0
		if s.full && s.sent < least {
			// Where the step gained nothing, the latency has grown like the limit. Where it has grown
			// far more, the provider has become slower meanwhile, and the step is tried anew.
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
	case want > r.limit && s.full && r.rest == 0:
		r.from, r.before, r.lasted = r.limit, s.sent, s.latency
		r.limit = min(want, growth*r.limit)
	}
	return r
}

// want is the limit that the rate needs at the measured latency.
func (r rule) want(s sample) int {
	emails := math.Ceil(s.rate*s.latency.Seconds()*headroom) + spare
	return int(min(max(emails, float64(r.least)), float64(r.most)))
}
