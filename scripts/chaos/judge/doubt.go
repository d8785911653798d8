package judge

import (
	"slices"
	"strings"
	"time"

	"email-gateway/scripts/chaos/fault"
	"email-gateway/scripts/chaos/stage"
)

// ask is one request to SES, by its attempt.
type ask struct {
	// clear: SES took it, and the whole answer was handed to the network while the worker
	// was there.
	clear bool
}

// excuse is a fault for which an attempt may end without anybody knowing how.
type excuse struct {
	fault.Played
	left int // so many attempts
}

const (
	// near is how far clocks and records of one machine may be apart.
	near = time.Second
	// callTime is how long a call to SES lasts at most: a fault that goes on for longer meets
	// the next ones.
	callTime = 30 * time.Second
)

// excuses lists the faults that befell the workers, their database or SES. Each can meet
// the calls that were under way: as many as the workers that it befell have hands.
func excuses(played []fault.Played) []excuse {
	var list []excuse
	for _, p := range played {
		kind, _, _ := strings.Cut(p.Kind, "-")
		if kind != "worker" && kind != stage.Postgres && kind != stage.SES {
			continue
		}
		hands := stage.Concurrency
		if !strings.HasPrefix(p.Subject, "worker-") {
			hands *= len(stage.ProgramNames("worker"))
		}
		list = append(list, excuse{p, hands * (1 + int(p.To.Sub(p.From)/callTime))})
	}
	slices.SortFunc(list, func(a, b excuse) int { return a.To.Compare(b.To) })
	return list
}

// during finds one that is not used up and happened within the time.
func during(list []excuse, from, to time.Time) *excuse {
	for i := range list {
		e := &list[i]
		if e.left > 0 && !e.From.After(to.Add(near)) && !e.To.Before(from.Add(-near)) {
			return e
		}
	}
	return nil
}

// tryDoubts holds every OUTCOME_UNKNOWN to its reason. Either SES got the request, and
// gave no answer or none that says anything; or a fault was at work, and no more of them
// at a time than the workers have hands.
func (j *Judge) tryDoubts() {
	var open []doubt
	for _, r := range j.emails {
		if r.timeline == nil {
			continue
		}
		for _, d := range r.timeline.doubts {
			a, asked := j.asks[d.attempt]
			if !asked {
				j.Counts.NeverAsked++
			}
			if !asked || a.clear {
				open = append(open, d)
			}
		}
	}
	slices.SortFunc(open, func(a, b doubt) int { return a.to.Compare(b.to) })
	list := excuses(j.played)
	for _, d := range open {
		if e := during(list, d.from, d.to); e != nil {
			e.left--
			continue
		}
		j.Find(Groundless, "email %s: the attempt at %s is OUTCOME_UNKNOWN at %s without a fault that explains it; SES answered clearly: %v",
			d.email, d.from.Format(time.StampMilli), d.to.Format(time.StampMilli), j.asks[d.attempt].clear)
	}
}

// tryFlags holds what a row says of itself to its timeline: a flag that every row has
// would announce nothing.
func (j *Judge) tryFlags(r *row) {
	t := r.timeline
	if t == nil {
		t = new(timeline)
	}
	switch {
	case r.unknown && !t.uncertain:
		j.Find(Groundless, "email %s is outcome_unknown, and no event says why", r.id)
	case t.uncertain && !r.unknown && !t.told:
		j.Find(Groundless, "email %s is not outcome_unknown, and nobody told how its attempt ended", r.id)
	}
	switch {
	case r.duplicate && !t.announced:
		j.Find(Groundless, "email %s is possible_duplicate, and no event says why", r.id)
	case t.announced && !r.duplicate:
		j.Find(Duplicate, "email %s was tried again after an attempt that may have been good, and is not possible_duplicate", r.id)
	}
}

// tryFailure counts what failed, by its reason, and what failed although SES was never
// asked. That needs something between the worker and SES that was broken.
func (j *Judge) tryFailure(r *row, list []excuse) {
	c := j.Counts.Failed[r.code]
	c.Count++
	if j.requests[r.id] == 0 {
		c.NeverAsked++
		if t := r.timeline; !r.unknown && t != nil && during(list, t.tried, t.failed) == nil {
			j.Find(Groundless, "email %s is FAILED for %s, SES was never asked, and nothing was broken", r.id, r.code)
		}
	}
	j.Counts.Failed[r.code] = c
}
