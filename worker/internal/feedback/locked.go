package feedback

import (
	"sync"
	"time"

	"github.com/google/uuid"
)

// lockedCompanies holds the companies whose rows another transaction has locked. For lockedTime their events are left
// in the queue, and then one at a time is recorded as a probe, so that they do not occupy all batches.
type lockedCompanies struct {
	mu    sync.Mutex
	until map[uuid.UUID]time.Time
	now   func() time.Time
}

func newLockedCompanies() *lockedCompanies {
	return &lockedCompanies{until: map[uuid.UUID]time.Time{}, now: time.Now}
}

// enter reports whether an event of the company may be recorded now, and whether it is the probe that checks if the
// rows are free again.
func (l *lockedCompanies) enter(company uuid.UUID) (may, probe bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	until, locked := l.until[company]
	if !locked {
		return true, false
	}
	if l.now().Before(until) {
		return false, false
	}
	l.until[company] = l.now().Add(recordTime)
	return true, true
}

// passed removes the company if the event was its probe.
func (l *lockedCompanies) passed(company uuid.UUID, probe bool) {
	if !probe {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.until, company)
}

// failed adds the company for lockedTime, and removes companies that have had no event for a minute.
func (l *lockedCompanies) failed(company uuid.UUID) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for one, until := range l.until {
		if l.now().Sub(until) > time.Minute {
			delete(l.until, one)
		}
	}
	l.until[company] = l.now().Add(lockedTime)
}
