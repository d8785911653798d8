package turns

import (
	"maps"
	"time"

	"github.com/google/uuid"
)

// Pacer has the times at which the items of a loop are due. It limits the loop to a twentieth of its time per item: counting the
// million entries of a mailing is followed by a longer pause than counting a thousand.
type Pacer map[uuid.UUID]time.Time

// RestPerWork is the pause as a multiple of the work's duration. longestRest limits the age of the
// numbers of a mailing that changes: a count may be slow because the machine is. shortRestPerWork applies to the
// last counts of a mailing, of which there are few, and to rounds of bulk requests that wait for a lock.
const (
	RestPerWork      = 20
	shortRestPerWork = 4
	longestRest      = 15 * time.Second
)

// Due reports whether the item is due.
func (p Pacer) Due(id uuid.UUID, now time.Time) bool { return !now.Before(p[id]) }

// LongerDue compares two items: the one that has been due for longer comes first. Those that were never worked on come before
// all others.
func (p Pacer) LongerDue(a, b uuid.UUID) int { return p[a].Compare(p[b]) }

// Worked makes an item due that the loop has just worked on: the company's others come before it.
func (p Pacer) Worked(id uuid.UUID) { p[id] = time.Now() }

// Wait schedules the next work after work that began then; least is the minimum pause.
func (p Pacer) Wait(id uuid.UUID, start time.Time, least time.Duration) {
	p.waitFor(id, start, least, RestPerWork, longestRest)
}

// WaitShortly is Wait with a shorter pause.
func (p Pacer) WaitShortly(id uuid.UUID, start time.Time, least time.Duration) {
	p.waitFor(id, start, least, shortRestPerWork, longestRest)
}

// WaitLong is Wait with a longer limit, after work that failed, perhaps because it takes too long.
func (p Pacer) WaitLong(id uuid.UUID, start time.Time, least, limit time.Duration) {
	p.waitFor(id, start, least, RestPerWork, limit)
}

func (p Pacer) waitFor(id uuid.UUID, start time.Time, least time.Duration, perWork int, limit time.Duration) {
	now := time.Now()
	p[id] = now.Add(max(least, min(time.Duration(perWork)*now.Sub(start), limit)))
}

// Keep removes all items but these.
func (p Pacer) Keep(ids map[uuid.UUID]bool) {
	maps.DeleteFunc(p, func(id uuid.UUID, _ time.Time) bool { return !ids[id] })
}
