// Package transfer chooses which upload or download is aborted when others wait for its place.
package transfer

import (
	"math"
	"sync"
	"time"

	"github.com/google/uuid"
)

// WaitLimit is how long a transfer waits for a place before the slowest one of other companies is
// aborted. The rate of a transfer is measured over at least this time.
const WaitLimit = 5 * time.Second

// Transfer is an upload or a download. Its methods are called from other goroutines.
type Transfer interface {
	// Progress returns the bytes of the last seconds and how long the gateway waited for them.
	Progress(now time.Time) (bytes int64, waited time.Duration)
	Abort()
	Aborted() bool
}

// Open are the transfers in progress. Without it, few companies could occupy all places with slow
// transfers.
type Open struct {
	// WaitLimit is how long a transfer waits for a place before it calls AbortSlowest.
	WaitLimit time.Duration
	// busyRate is the minimum rate (bytes per second) of a company's only transfer while others wait.
	busyRate float64

	mu        sync.Mutex
	transfers map[Transfer]uuid.UUID // the company of each
	abortedAt time.Time              // when the last one was aborted
}

// NewOpen returns an Open without transfers.
func NewOpen(busyRate float64) *Open {
	return &Open{WaitLimit: WaitLimit, busyRate: busyRate, transfers: map[Transfer]uuid.UUID{}}
}

// Add registers a transfer of the company until remove is called.
func (o *Open) Add(company uuid.UUID, t Transfer) (remove func()) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.transfers[t] = company
	return func() {
		o.mu.Lock()
		defer o.mu.Unlock()
		delete(o.transfers, t)
	}
}

// AbortSlowest aborts one transfer. If companies have several transfers, it aborts the slowest of
// theirs, whatever its rate. Otherwise it aborts the slowest transfer below busyRate. It aborts at
// most one transfer per WaitLimit, however many callers wait: each calls it once in that time. A
// tenth less is enough, because the calls of one caller may be slightly less than WaitLimit
// apart.
func (o *Open) AbortSlowest() {
	o.mu.Lock()
	defer o.mu.Unlock()
	now := time.Now()
	if now.Sub(o.abortedAt) < o.WaitLimit*9/10 {
		return
	}
	if t := o.slowest(now); t != nil {
		t.Abort()
		o.abortedAt = now
	}
}

// slowest returns the transfer that AbortSlowest aborts, or nil. o.mu must be held.
func (o *Open) slowest(now time.Time) (slowest Transfer) {
	companies, several := o.byCompany()
	least := o.busyRate
	if several {
		least = math.Inf(1)
	}
	for _, transfers := range companies {
		if several && len(transfers) == 1 {
			continue
		}
		if t, rate := o.slower(transfers, now); t != nil && rate < least {
			slowest, least = t, rate
		}
	}
	return slowest
}

// byCompany groups the transfers by company, and reports whether a company has several.
func (o *Open) byCompany() (companies map[uuid.UUID][]Transfer, several bool) {
	companies = map[uuid.UUID][]Transfer{}
	for t, company := range o.transfers {
		if !t.Aborted() {
			companies[company] = append(companies[company], t)
			several = several || len(companies[company]) > 1
		}
	}
	return companies, several
}

// slower returns the slowest of a company's transfers, or nil if one is too new to be measured.
func (o *Open) slower(transfers []Transfer, now time.Time) (slowest Transfer, least float64) {
	for _, t := range transfers {
		bytes, waited := t.Progress(now)
		if waited < o.WaitLimit {
			return nil, 0
		}
		if rate := float64(bytes) / waited.Seconds(); slowest == nil || rate < least {
			slowest, least = t, rate
		}
	}
	return slowest, least
}
