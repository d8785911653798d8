package gate

import (
	"sync"
	"time"

	"email-gateway/shared/store"
	"email-gateway/worker/internal/provider"
)

// What one process must see in a row before it believes that the provider is away, or
// that a stranger answers in its place. Each process counts for itself: its calls leave
// through the same network, and the count is exact without asking anybody. With more
// processes, or few emails, the time decides.
const (
	outageCalls = 20
	outageTime  = 5 * time.Second
	// outageGap ends a run: two failures half an hour apart are no outage.
	outageGap       = time.Minute
	unreadableCalls = 3
)

// run counts calls that failed alike, one after the other, while the gate was open for
// the same time. Probes are not in the row: they find out something else.
type run struct {
	mu          sync.Mutex
	turn        int64 // how often the gate had been shut before
	outages     int
	since, last time.Time // of those
	unreadables int
}

// ended notes how a call ended (nil: it was accepted), and says whether that makes enough
// of its kind in a row.
func (r *run) ended(pass store.GatePass, f *provider.Failure, now time.Time) (enough bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if pass.Probe || pass.Shuts < r.turn {
		return false
	}
	if pass.Shuts > r.turn {
		r.turn, r.outages, r.unreadables = pass.Shuts, 0, 0
	}
	switch {
	case f == nil:
		r.outages, r.unreadables = 0, 0
	case f.Verdict == provider.Unspent:
		// Our side gave up: nothing was learnt.
	case f.Outage:
		r.unreadables = 0
		if r.outages == 0 || now.Sub(r.last) > outageGap {
			r.outages, r.since = 0, now
		}
		r.outages++
		r.last = now
		return r.outages >= outageCalls || now.Sub(r.since) >= outageTime
	case f.Verdict == provider.Unreadable:
		r.outages = 0
		r.unreadables++
		return r.unreadables >= unreadableCalls
	default:
		r.outages, r.unreadables = 0, 0
	}
	return false
}
