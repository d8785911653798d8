package checker

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"

	"email-gateway/scripts/chaos/cluster"
	"email-gateway/scripts/chaos/fault"
)

const (
	// quietWait is how long an email of the quiet tenant may wait because of other tenants by
	// design: more than the window, which is 0.75 s of the send rate.
	quietWait = 2 * time.Second
	// quietMargin is for a machine whose CPU is shared by the whole gateway, its services and its
	// load generator.
	quietMargin = time.Second
	// quietBound is the limit of the 99th percentile of the latency.
	quietBound = quietWait + quietMargin
	// quietGrace is how long after a fault its effect on the latency may last: programs reconnect,
	// the circuit breaker closes, the dispatcher finds lost tasks.
	quietGrace = 10 * time.Second
	// quietMinMeasured is the minimum number of measured emails in a run whose quiet tenant sent
	// quietSent, in some four minutes. In a shorter run a fault may affect all of them.
	quietMinMeasured, quietSent = 10, 500
	// quietMinForLimit is the minimum number of measured emails for the limit to apply. The 99th
	// percentile of fewer is a single email, and a run of a minute on a busy machine has only a
	// few.
	quietMinForLimit = 50
)

// Quiet is the latency of a tenant that sends few emails, from acceptance to the request to SES.
type Quiet struct {
	Accepted int     `json:"accepted"`
	Measured int     `json:"measured"` // those that no fault could affect
	P50      float64 `json:"p50Seconds"`
	P99      float64 `json:"p99Seconds"`
	// AtRate is the 99th percentile on a machine that sends at the send rate: see atRate.
	AtRate float64 `json:"p99SecondsAtSendRate"`
	Bound  float64 `json:"boundSeconds"` // of AtRate
}

// Enough reports whether enough emails were measured for a run of that length.
func (q Quiet) Enough() bool { return q.Measured >= quietMinMeasured || q.Accepted < quietSent }

// span is a time in which a fault may affect an email.
type span struct{ from, to time.Time }

// affectedTimes lists the times of acceptance for which a fault may affect the latency. An email that is
// accepted right before a fault may still wait when it begins. A frozen program affects the emails
// that it held; the other programs process later ones.
func affectedTimes(p fault.Injected) []span {
	switch {
	case p.Reach() == fault.ReachesNone:
		return nil
	case p.IsFreeze():
		return []span{{p.From.Add(-quietBound), p.From.Add(quietGrace)}, {p.To.Add(-quietBound), p.To.Add(quietGrace)}}
	}
	return []span{{p.From.Add(-quietBound), p.To.Add(quietGrace)}}
}

// checkQuiet measures the emails that were accepted while no fault could affect them. An email that
// still waits when a fault begins is measured up to that time, if it had waited too long by then.
func (c *Checker) checkQuiet() {
	var spans []span
	for _, p := range c.injected {
		spans = append(spans, affectedTimes(p)...)
	}
	var took, scaled []time.Duration
	var slow []string
	q := &c.Counts.Quiet
	q.Bound = quietBound.Seconds()
	for _, a := range c.records.Emails {
		if !a.Quiet() {
			continue
		}
		q.Accepted++
		at := acceptedAt(a.ID)
		asked, found := c.first[a.ID.String()]
		if !found || slices.ContainsFunc(spans, func(s span) bool { return at.After(s.from) && at.Before(s.to) }) {
			continue // without a request to SES it is lost, which is another finding
		}
		cut, met := firstFaultDuring(spans, at, asked)
		ahead, pause := c.ahead(at, cut)
		if met && atRate(cut.Sub(at), ahead, pause) <= quietBound {
			continue // its latency without the fault is unknown
		}
		asked = cut
		took, scaled = append(took, asked.Sub(at)), append(scaled, atRate(asked.Sub(at), ahead, pause))
		if scaled[len(scaled)-1] > quietBound {
			slow = append(slow, fmt.Sprintf("%s, accepted at %s, waited %.2f s: %d requests ahead, longest pause between two %.2f s",
				a.ID, at.Format(time.StampMilli), asked.Sub(at).Seconds(), ahead, pause.Seconds()))
		}
	}
	if q.Measured = len(took); q.Measured == 0 {
		return
	}
	slices.Sort(took)
	slices.Sort(scaled)
	q.P50, q.P99, q.AtRate = percentile(took, 0.5).Seconds(), percentile(took, 0.99).Seconds(), percentile(scaled, 0.99).Seconds()
	if q.AtRate > q.Bound && q.Measured >= quietMinForLimit {
		c.Findings.Add(Slow, "the quiet tenant's emails waited %.2f s, %.2f s at the send rate (p99 of %d), limit %.0f s; %s",
			q.P99, q.AtRate, q.Measured, q.Bound, strings.Join(slow[:min(len(slow), maxExamples)], "; "))
	}
}

// firstFaultDuring returns when the first fault began while the email waited, and whether there was one;
// otherwise the time of its request. On a machine slower than the send rate an email that was
// accepted before the margin may still wait then.
func firstFaultDuring(spans []span, accepted, asked time.Time) (cut time.Time, met bool) {
	cut = asked
	for _, s := range spans {
		if start := s.from.Add(quietBound); start.After(accepted) && start.Before(cut) {
			cut, met = start, true
		}
	}
	return cut, met
}

// ahead returns the number of requests to SES while an email waited, and the longest pause between
// them.
func (c *Checker) ahead(accepted, asked time.Time) (n int, pause time.Duration) {
	from, _ := slices.BinarySearchFunc(c.times, accepted, time.Time.Compare)
	last := accepted
	for _, at := range c.times[from:] {
		if !at.Before(asked) {
			break
		}
		n, pause, last = n+1, max(pause, at.Sub(last)), at
	}
	return n, max(pause, asked.Sub(last))
}

// atRate is how long an email would have waited on a machine that sends at the send rate: the time
// that the requests ahead of it need at that rate, plus the longest pause between them. So a slow
// machine passes, and a stalled system fails.
func atRate(wait time.Duration, ahead int, pause time.Duration) time.Duration {
	return min(wait, pause+time.Duration(ahead)*time.Second/cluster.SendRate)
}

// percentile returns the smallest of the sorted times that is not exceeded by at least the given
// share.
func percentile(sorted []time.Duration, share float64) time.Duration {
	return sorted[max(0, int(math.Ceil(share*float64(len(sorted))))-1)]
}

// acceptedAt is when the api received the request: its commit is part of the latency.
func acceptedAt(id uuid.UUID) time.Time {
	sec, nsec := id.Time().UnixTime()
	return time.Unix(sec, nsec)
}
