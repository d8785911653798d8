package gate

import (
	"sync"
	"time"

	"github.com/google/uuid"

	"email-gateway/worker/internal/provider"
)

// What one process must see in a row before it believes that the provider is away, or
// that a stranger answers in its place. Each process counts for itself: its calls leave
// through the same network, and the count is exact without asking anybody. With more
// processes, or few emails, the time decides. One email alone is never believed: it may be
// the one that cuts the connection.
const (
	outageCalls = 20
	outageTime  = 5 * time.Second
	// outageGap ends a run: two failures half an hour apart are no outage.
	outageGap = time.Minute
	// suspectCalls of more than one email are a suspicion. One email has five tries.
	suspectCalls    = 6
	unreadableCalls = 3
)

// belief is what a run of failures says about the provider.
type belief int

const (
	unsuspected belief = iota
	suspected
	certain
)

// run counts calls that failed alike, one after the other, while the gate was open for
// the same time. Probes are not in the row: they find out something else.
type run struct {
	mu          sync.Mutex
	turn        int64 // how often the gate had been shut before
	outages     int
	first       uuid.UUID // email of the first of those
	several     bool      // there is another email among them
	since, last time.Time // of those
	answered    bool      // a call got an answer after the last outage failure
	unreadables int
}

// ended notes how a call ended (nil: it was accepted), and says what that and the calls of
// its kind before it say together. answers: the provider accepted or refused a call between this
// outage failure and the one before it.
func (r *run) ended(c Call, f *provider.Failure, now time.Time) (b belief, answers bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if c.Pass.Probe || c.Pass.Shuts < r.turn {
		return unsuspected, false
	}
	if c.Pass.Shuts > r.turn {
		r.turn, r.outages, r.unreadables, r.answered = c.Pass.Shuts, 0, 0, false
	}
	switch {
	case f == nil:
		r.outages, r.unreadables, r.answered = 0, 0, true
	case f.Verdict == provider.Unspent:
		// Our side gave up: nothing was learnt.
	case f.Category == provider.ValidationError:
		// The SDK refused the request before sending it: nothing was learnt either.
	case f.Outage:
		r.unreadables = 0
		answers, r.answered = r.answered, false
		return r.outage(c.Email, now), answers
	case f.Verdict == provider.Unreadable:
		r.outages = 0
		if r.unreadables++; r.unreadables >= unreadableCalls {
			return certain, false
		}
	default:
		r.outages, r.unreadables, r.answered = 0, 0, true
	}
	return unsuspected, false
}

func (r *run) outage(email uuid.UUID, now time.Time) belief {
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
