package fault

import (
	"slices"
	"strings"
	"time"

	"email-gateway/scripts/chaos/stage"
)

// Reach is how much of the sending a fault affects while it lasts.
type Reach int

const (
	// ReachesNone: emails that are accepted are sent as if nothing had happened.
	ReachesNone Reach = iota
	// ReachesSome: one of several programs is affected, and the others go on.
	ReachesSome
	// ReachesAll: no email is sent, or each one may fail.
	ReachesAll
)

// Reach says how much of the sending the fault affects.
func (p Played) Reach() Reach {
	part, _, _ := strings.Cut(p.Kind, "-")
	switch {
	case part == stage.API, part == "client", part == stage.RabbitMQ:
		return ReachesNone // single emails pass none of these once they are accepted
	case part == "operator" && p.Subject != gate:
		return ReachesNone // of other companies
	case part == "dispatcher", part == "worker":
		return ReachesSome
	case strings.Contains(p.Subject, ":") && !strings.HasPrefix(p.Subject, everyLink):
		return ReachesSome // one link
	}
	return ReachesAll
}

// Froze says that the fault stopped one program for longer than any lease. What the program
// held is in other hands long before it runs again.
func (p Played) Froze() bool { return strings.HasSuffix(p.Kind, "-freeze") }

// Outage is how much of the time between from and to was covered by faults that stop all
// sending.
func Outage(played []Played, from, to time.Time) time.Duration {
	var stops []Played
	for _, p := range played {
		if p.Reach() == ReachesAll && p.To.After(from) && p.From.Before(to) {
			stops = append(stops, p)
		}
	}
	return covered(stops, from, to)
}

// covered is the length of the union of the faults' times between from and to.
func covered(played []Played, from, to time.Time) time.Duration {
	slices.SortFunc(played, func(a, b Played) int { return a.From.Compare(b.From) })
	var sum time.Duration
	for _, p := range played {
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
