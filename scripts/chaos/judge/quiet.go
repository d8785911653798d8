package judge

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"

	"email-gateway/scripts/chaos/fault"
	"email-gateway/scripts/chaos/stage"
)

const (
	// quietWait is how long a quiet tenant's email may wait because of other tenants, by the
	// design: the window, 2 s at the send rate.
	quietWait = 2 * time.Second
	// quietMargin is for a machine whose processors the whole gateway, its services and its
	// load share.
	quietMargin = time.Second
	// quietBound is the latency that 99 of 100 of its emails must not exceed.
	quietBound = quietWait + quietMargin
	// quietGrace is how long after a fault its effect on the latency may last: connections are
	// opened again, the circuit breaker closes, lost tasks are found.
	quietGrace = 10 * time.Second
	// quietLeast is how many emails must have been measured in a run whose quiet tenant sent
	// quietSent, in some four minutes. In a shorter one a fault may affect them all.
	quietLeast, quietSent = 10, 500
	// quietJudged is how many must have been measured for the run to fail by them. The 99th
	// percentile of fewer is a single email, and a run of a minute on a machine that does other
	// work beside it has only some.
	quietJudged = 50
)

// Quiet is the latency of a tenant that sends an email now and then, from acceptance to the
// request to SES.
type Quiet struct {
	Accepted int     `json:"accepted"`
	Measured int     `json:"measured"` // those that no fault could affect
	P50      float64 `json:"p50Seconds"`
	P99      float64 `json:"p99Seconds"`
	// AtRate is the 99th percentile on a machine that sends at the send rate: see atRate.
	AtRate float64 `json:"p99SecondsAtSendRate"`
	Bound  float64 `json:"boundSeconds"` // of AtRate
}

// Enough says that as many emails were measured as a run of that length must offer.
func (q Quiet) Enough() bool { return q.Measured >= quietLeast || q.Accepted < quietSent }

// span is a time in which a fault may affect an email.
type span struct{ from, to time.Time }

// upsets lists when a fault may affect the latency of an email that is accepted then. An email
// that is accepted right before a fault may still wait when it begins. A program that is
// frozen affects what it held, and what comes later is in the hands of the others.
func upsets(p fault.Played) []span {
	switch {
	case p.Reach() == fault.ReachesNone:
		return nil
	case p.Froze():
		return []span{{p.From.Add(-quietBound), p.From.Add(quietGrace)}, {p.To.Add(-quietBound), p.To.Add(quietGrace)}}
	}
	return []span{{p.From.Add(-quietBound), p.To.Add(quietGrace)}}
}

// tryQuiet measures the emails that were accepted while no fault could affect them. One that
// met a fault all the same is measured up to it, if it had waited too long by then.
func (j *Judge) tryQuiet() {
	var spans []span
	for _, p := range j.played {
		spans = append(spans, upsets(p)...)
	}
	var took, scaled []time.Duration
	var slow []string
	q := &j.Counts.Quiet
	q.Bound = quietBound.Seconds()
	for _, a := range j.notes.Emails {
		if !a.Quiet() {
			continue
		}
		q.Accepted++
		at := acceptedAt(a.ID)
		asked, found := j.first[a.ID.String()]
		if !found || slices.ContainsFunc(spans, func(s span) bool { return at.After(s.from) && at.Before(s.to) }) {
			continue // one that SES was never asked for is lost, and found as such
		}
		cut, met := firstWithin(spans, at, asked)
		ahead, pause := j.ahead(at, cut)
		if met && atRate(cut.Sub(at), ahead, pause) <= quietBound {
			continue // how long it would have waited without the fault is not known
		}
		asked = cut
		took, scaled = append(took, asked.Sub(at)), append(scaled, atRate(asked.Sub(at), ahead, pause))
		if scaled[len(scaled)-1] > quietBound {
			slow = append(slow, fmt.Sprintf("%s, accepted at %s, waited %.2f s: %d requests ahead, the longest pause between two %.2f s",
				a.ID, at.Format(time.StampMilli), asked.Sub(at).Seconds(), ahead, pause.Seconds()))
		}
	}
	if q.Measured = len(took); q.Measured == 0 {
		return
	}
	slices.Sort(took)
	slices.Sort(scaled)
	q.P50, q.P99, q.AtRate = percentile(took, 0.5).Seconds(), percentile(took, 0.99).Seconds(), percentile(scaled, 0.99).Seconds()
	if q.AtRate > q.Bound && q.Measured >= quietJudged {
		j.Find(Slow, "a quiet tenant's emails waited %.2f s, %.2f s at the send rate (p99 of %d); at most %.0f s are allowed; %s",
			q.P99, q.AtRate, q.Measured, q.Bound, strings.Join(slow[:min(len(slow), maxExamples)], "; "))
	}
}

// firstWithin is when the first fault began that an email met while it waited, and whether
// there was one; the email's end otherwise. On a machine slower than the send rate an email
// that was accepted before the margin may still wait then.
func firstWithin(spans []span, accepted, asked time.Time) (cut time.Time, met bool) {
	cut = asked
	for _, s := range spans {
		if began := s.from.Add(quietBound); began.After(accepted) && began.Before(cut) {
			cut, met = began, true
		}
	}
	return cut, met
}

// ahead counts the requests to SES while an email waited, and says how long there was none at
// most.
func (j *Judge) ahead(accepted, asked time.Time) (n int, pause time.Duration) {
	from, _ := slices.BinarySearchFunc(j.times, accepted, time.Time.Compare)
	last := accepted
	for _, at := range j.times[from:] {
		if !at.Before(asked) {
			break
		}
		n, pause, last = n+1, max(pause, at.Sub(last)), at
	}
	return n, max(pause, asked.Sub(last))
}

// atRate is how long an email would have waited on a machine that sends at the send rate: the
// time that the requests ahead of it need at that rate, and the longest pause between them. So
// a slow machine does not fail, and a system that stands still does.
func atRate(wait time.Duration, ahead int, pause time.Duration) time.Duration {
	return min(wait, pause+time.Duration(ahead)*time.Second/stage.SendRate)
}

// percentile is the smallest of the sorted times that at least the share does not exceed.
func percentile(sorted []time.Duration, share float64) time.Duration {
	return sorted[max(0, int(math.Ceil(share*float64(len(sorted))))-1)]
}

// acceptedAt is when the api took the request: its commit is part of the latency.
func acceptedAt(id uuid.UUID) time.Time {
	sec, nsec := id.Time().UnixTime()
	return time.Unix(sec, nsec)
}
