package chaos

import (
	"time"

	"email-gateway/scripts/chaos/fault"
)

// Minimum is the amount of work and faults that a run needs for its result to count.
type Minimum struct {
	Emails   int `json:"emails"`   // accepted one by one, or as rows of mailings
	Mailings int `json:"mailings"` // accepted
	Faults   int `json:"faults"`   // injected
	Kinds    int `json:"kinds"`    // among them
	Kills    int `json:"kills"`    // of each program and service
}

// The two standard durations. Minimums of durations between them are interpolated, those of shorter
// runs are proportional to the short one.
const (
	shortRun = time.Minute
	longRun  = 20 * time.Minute
)

var (
	shortMinimum = Minimum{Emails: 5000, Mailings: 2, Faults: 10, Kinds: 6}
	longMinimum  = Minimum{Emails: 200_000, Mailings: 20, Faults: 200, Kinds: 12, Kills: 10}
)

// minimumOf returns the minimum of a run of the duration with only those kinds of faults. Its
// number of emails is for a fast machine: see onMachine.
func minimumOf(duration time.Duration, kinds []fault.Kind) Minimum {
	from, to, share := Minimum{}, shortMinimum, float64(duration)/float64(shortRun)
	if duration > shortRun {
		from, to, share = shortMinimum, longMinimum, float64(duration-shortRun)/float64(longRun-shortRun)
	}
	between := func(a, b int) int { return a + int(share*float64(b-a)) }
	m := Minimum{
		Emails:   between(from.Emails, to.Emails),
		Mailings: between(from.Mailings, to.Mailings),
		Faults:   between(from.Faults, to.Faults),
		Kinds:    min(between(from.Kinds, to.Kinds), len(kinds)),
		Kills:    between(from.Kills, to.Kills),
	}
	if len(kinds) < len(fault.Kinds()) {
		m.Kills = 0 // not every part can be killed by some kinds
	}
	return m
}

const (
	// workingShare is the part of the calibrated rate that a run must reach while no outage stops
	// all sending: retries and the recovery from faults use the rest.
	workingShare = 0.7
	// leastRate is the minimum in emails per second on any machine: below it the system hardly
	// works.
	leastRate = 10
)

// onMachine reduces the number of emails to the throughput of this machine: rate is the throughput
// of the fault-free phase of the same run, outage how long faults stopped all sending.
func (m Minimum) onMachine(rate float64, duration, outage time.Duration) Minimum {
	reachable := workingShare * rate * (duration - outage).Seconds()
	least := leastRate * duration.Seconds()
	m.Emails = min(m.Emails, int(max(reachable, least)))
	return m
}
