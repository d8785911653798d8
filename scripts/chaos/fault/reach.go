package fault

import (
	"slices"
	"strings"
	"time"

	"email-gateway/scripts/chaos/cluster"
)

// Reach is how much of the sending a fault affects while it lasts.
type Reach int

const (
	// ReachesNone: the fault does not affect the sending of accepted emails.
	ReachesNone Reach = iota
	// ReachesSome: one of several programs is affected, the others continue.
	ReachesSome
	// ReachesAll: no email is sent, or each one may fail.
	ReachesAll
)

// Reach returns how much of the sending the fault affects.
func (p Injected) Reach() Reach {
	component, _, _ := strings.Cut(p.Kind, "-")
	switch {
	case component == cluster.API, component == "client", component == cluster.RabbitMQ, component == cluster.S3:
		return ReachesNone // accepted single emails without attachments need none of these
	case component == "operator" && p.Subject != everything:
		return ReachesNone // of other companies
	case component == "dispatcher", component == "worker":
		return ReachesSome
	case strings.Contains(p.Subject, ":") && !strings.HasPrefix(p.Subject, everyLink):
		return ReachesSome // one link
	}
	return ReachesAll
}

// IsFreeze reports whether the fault stopped one program for longer than any lease. Other programs
// take over its work long before it resumes.
func (p Injected) IsFreeze() bool { return strings.HasSuffix(p.Kind, "-freeze") }

// Outage returns how long faults stopped all sending between from and to.
func Outage(injected []Injected, from, to time.Time) time.Duration {
	var stops []Injected
	for _, p := range injected {
		if p.Reach() == ReachesAll && p.To.After(from) && p.From.Before(to) {
			stops = append(stops, p)
		}
	}
	return Covered(stops, from, to)
}

// Covered returns the length of the union of the faults' times between from and to.
func Covered(injected []Injected, from, to time.Time) time.Duration {
	slices.SortFunc(injected, func(a, b Injected) int { return a.From.Compare(b.From) })
	var sum time.Duration
	for _, p := range injected {
		begin, end := p.From, p.To
		if begin.Before(from) {
			begin = from
		}
		if end.After(to) {
			end = to
		}
		if end.After(begin) {
			sum += end.Sub(begin)
			from = end
		}
	}
	return sum
}
