package checker

import (
	"slices"
	"strings"
	"time"

	"email-gateway/scripts/chaos/cluster"
	"email-gateway/scripts/chaos/fault"
	"email-gateway/scripts/sessim"
)

// sesRequest is the request to SES of one attempt.
type sesRequest struct {
	// confirmed: the worker was connected while SES sent the whole of a response that says whether it accepted the email.
	confirmed bool
	status    int
	fault     string // of the simulator
}

func newRequest(e sessim.Entry) sesRequest {
	known := e.Accepted && e.Fault == "" || !e.Accepted && (e.Status/100 == 4 || e.Fault == "unavailable-json") // SES's own 503
	return sesRequest{confirmed: known && e.Answered, status: e.Status, fault: e.Fault}
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

// explanations lists the faults of the workers, their database or their links to it and to SES. Each can affect the calls in
// flight: as many as the concurrency of the affected workers. SES's own faults are in its ledger, request by request.
func explanations(injected []fault.Injected) []explanation {
	var list []explanation
	for _, p := range injected {
		kind, _, _ := strings.Cut(p.Kind, "-")
		program, _, isLink := strings.Cut(p.Subject, ":")
		ofWorker := !isLink || program == "every" || strings.HasPrefix(program, "worker-")
		if !ofWorker || p.Subject == cluster.SES || kind != "worker" && kind != cluster.Postgres && kind != cluster.SES {
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

// explain reports whether a fault of that time may explain another attempt, and counts it.
func explain(list []explanation, from, to time.Time) bool {
	for i := range list {
		e := &list[i]
		if e.left > 0 && !e.From.After(to.Add(clockTolerance)) && !e.To.Before(from.Add(-clockTolerance)) {
			e.left--
			return true
		}
	}
	return false
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
		if explain(list, d.from, d.to) {
			continue
		}
		c.Findings.Add(Unexplained, "email %s: the attempt at %s is OUTCOME_UNKNOWN at %s without a fault that explains it; request to SES: %+v",
			d.email, d.from.Format(time.StampMilli), d.to.Format(time.StampMilli), c.sesRequests[d.attempt])
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
		c.Findings.Add(Unexplained, "email %s is outcome_unknown, but has no event that explains it", r.id)
	case t.uncertain && !r.unknown && !t.clearedByFeedback:
		c.Findings.Add(Unexplained, "email %s is not outcome_unknown, but the outcome of its attempt is unknown", r.id)
	}
	switch {
	case r.duplicate && !t.mayRepeat:
		c.Findings.Add(Unexplained, "email %s is possible_duplicate, but has no event that explains it", r.id)
	case t.mayRepeat && !r.duplicate:
		c.Findings.Add(Duplicate, "email %s was sent again after an attempt that may have succeeded, and is not possible_duplicate", r.id)
	}
}
