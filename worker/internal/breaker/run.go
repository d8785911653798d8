package breaker

import (
	"sync"
	"time"

	"github.com/google/uuid"

	"email-gateway/worker/internal/provider"
)

// Thresholds at which one process considers the provider down, or assumes that something else
// answers in its place. Each process counts its own calls, which use the same network: that is
// exact without coordination. With many processes, or few emails, the time limits decide. A single
// email never suffices: it may itself be the cause.
const (
	outageCalls = 20
	outageTime  = 5 * time.Second
	// outageGap ends a run: two failures half an hour apart are no outage.
	outageGap = time.Minute
	// suspectCalls of more than one email are a suspected outage. One email has five attempts.
	suspectCalls    = 6
	unreadableCalls = 3
)

// diagnosis is the conclusion from a run of failures.
type diagnosis int

const (
	unsuspected diagnosis = iota
	suspected
	certain
)

// run counts consecutive failures of the same kind since the breaker was last opened. Probes are
// not counted.
type run struct {
	mu          sync.Mutex
	turn        int64     // how often the breaker had been opened before
	turned      time.Time // when turn was set
	outages     int
	first       uuid.UUID // email of the first outage failure
	several     bool      // another email is among them
	since, last time.Time // times of the outage failures
	answered    bool      // a call got a response after the last outage failure
	unreadables int
}

// ended records the result of a call (nil: accepted), and returns the conclusion from it and the
// previous failures of its kind. answers means that the provider accepted or refused a call between
// this outage failure and the previous one.
func (r *run) ended(c Call, f *provider.Failure, now time.Time) (b diagnosis, answers bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	// A lower number is that of an earlier period, unless the call began after the higher one was seen:
	// then the number is that of a promoted standby, which did not receive the last opening.
	if c.Pass.Probe || c.Pass.Openings < r.turn && !c.Began.After(r.turned) {
		return unsuspected, false
	}
	if c.Pass.Openings != r.turn {
		r.turn, r.turned, r.outages, r.unreadables, r.answered = c.Pass.Openings, now, 0, 0, false
	}
	switch {
	case f == nil:
		r.outages, r.unreadables, r.answered = 0, 0, true
	case f.Outcome == provider.Unspent, f.Withheld:
		// The call ended on our side, or was not made: no information about the provider.
	case f.Category == provider.ValidationError:
		// The SDK rejected the request before sending it: no information either.
	case f.Incomplete:
		// The email may be the cause, and so may be that of the next one of its sender.
	case f.Outage:
		r.unreadables = 0
		answers, r.answered = r.answered, false
		return r.outage(c.Email, now), answers
	case f.Outcome == provider.Unreadable:
		r.outages = 0
		if r.unreadables++; r.unreadables >= unreadableCalls {
			return certain, false
		}
	default:
		r.outages, r.unreadables, r.answered = 0, 0, true
	}
	return unsuspected, false
}

func (r *run) outage(email uuid.UUID, now time.Time) diagnosis {
	if r.outages == 0 || now.Sub(r.last) > outageGap {
		r.outages, r.since, r.first, r.several = 0, now, email, false
	}
	r.outages++
	r.last = now
	r.several = r.several || email != r.first
	switch {
	case r.several && (r.outages >= outageCalls || now.Sub(r.since) >= outageTime):
		return certain
	case r.several && r.outages >= suspectCalls:
		return suspected
	}
	return unsuspected
}
