package checker

import (
	"slices"
	"strings"
	"time"

	"email-gateway/scripts/chaos/cluster"
	"email-gateway/scripts/chaos/fault"
)

// sesRequest is the request to SES of one attempt.
type sesRequest struct {
	// confirmed: SES accepted the email, and sent the whole response while the worker was connected.
	confirmed bool
}

// explanation is a fault that explains attempts with an unknown outcome.
type explanation struct {
	fault.Injected
	left int // the number of attempts that it may still explain
}

const (
	// clockTolerance is the tolerance between timestamps of one machine.
	clockTolerance = time.Second
	// maxCallTime is the maximum duration of a call to SES: a longer fault affects the next calls too.
	maxCallTime = 30 * time.Second
)

// explanations lists the faults of the workers, their database or SES. Each can affect the calls in
// flight: as many as the concurrency of the affected workers.
func explanations(injected []fault.Injected) []explanation {
	var list []explanation
	for _, p := range injected {
		kind, _, _ := strings.Cut(p.Kind, "-")
		if kind != "worker" && kind != cluster.Postgres && kind != cluster.SES {
			continue
		}
		calls := cluster.Concurrency
		if !strings.HasPrefix(p.Subject, "worker-") {
			calls *= len(cluster.ProgramNames("worker"))
		}
		list = append(list, explanation{p, calls * (1 + int(p.To.Sub(p.From)/maxCallTime))})
	}
	slices.SortFunc(list, func(a, b explanation) int { return a.To.Compare(b.To) })
	return list
}

// explain returns a fault of that time that may explain another attempt, or nil.
func explain(list []explanation, from, to time.Time) *explanation {
	for i := range list {
		e := &list[i]
		if e.left > 0 && !e.From.After(to.Add(clockTolerance)) && !e.To.Before(from.Add(-clockTolerance)) {
			return e
		}
	}
	return nil
}

// checkUnknownOutcomes checks that every OUTCOME_UNKNOWN has a reason: either SES received the request and
// gave no usable response, or there was a fault, which explains at most as many attempts as the
// concurrency of the affected workers.
func (c *Checker) checkUnknownOutcomes() {
	var open []unknownOutcome
	for _, r := range c.emails {
		if r.timeline == nil {
			continue
		}
		for _, d := range r.timeline.unknownOutcomes {
			a, asked := c.sesRequests[d.attempt]
			if !asked {
				c.Counts.NoRequest++
			}
			if !asked || a.confirmed {
				open = append(open, d)
			}
		}
	}
	slices.SortFunc(open, func(a, b unknownOutcome) int { return a.to.Compare(b.to) })
	list := explanations(c.injected)
	for _, d := range open {
		if e := explain(list, d.from, d.to); e != nil {
			e.left--
			continue
		}
		c.AddFinding(Unexplained, "email %s: the attempt at %s is OUTCOME_UNKNOWN at %s without a fault that explains it; SES accepted and responded: %v",
			d.email, d.from.Format(time.StampMilli), d.to.Format(time.StampMilli), c.sesRequests[d.attempt].confirmed)
	}
}

// checkFlags compares the flags of a row with its timeline: without this check a gateway that flags
// every row would pass.
func (c *Checker) checkFlags(r *row) {
	t := r.timeline
	if t == nil {
		t = new(timeline)
	}
	switch {
	case r.unknown && !t.uncertain:
		c.AddFinding(Unexplained, "email %s is outcome_unknown, but has no event that explains it", r.id)
	case t.uncertain && !r.unknown && !t.hasFeedback:
		c.AddFinding(Unexplained, "email %s is not outcome_unknown, but the outcome of its attempt is unknown", r.id)
	}
	switch {
	case r.duplicate && !t.mayRepeat:
		c.AddFinding(Unexplained, "email %s is possible_duplicate, but has no event that explains it", r.id)
	case t.mayRepeat && !r.duplicate:
		c.AddFinding(Duplicate, "email %s was sent again after an attempt that may have succeeded, and is not possible_duplicate", r.id)
	}
}

// checkFailure counts failed emails by error code, and those of which SES received no request. The
// latter need a fault between the worker and SES.
func (c *Checker) checkFailure(r *row, list []explanation) {
	failures := c.Counts.Failed[r.code]
	failures.Count++
	if c.requests[r.id] == 0 {
		failures.NoRequest++
		if t := r.timeline; !r.unknown && t != nil && explain(list, t.firstAttempt, t.lastFailure) == nil {
			c.AddFinding(Unexplained, "email %s is FAILED with %s, SES received no request, and there was no fault", r.id, r.code)
		}
	}
	c.Counts.Failed[r.code] = failures
}
