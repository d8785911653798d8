package fairloop

import (
	"maps"
	"time"

	"github.com/google/uuid"
)

// Schedule says when each item of a loop is due. After work of duration d an item is due again after 20 d, so a loop
// spends at most a twentieth of its time on one item: counting the million entries of a mailing is followed by a longer
// pause than counting a thousand.
type Schedule map[uuid.UUID]time.Time

// RestPerWork is the pause as a multiple of the work's duration. maxRest limits the age of the
// numbers of a mailing that changes: a count may be slow because the machine is. shortRestPerWork applies to the
// last counts of a mailing, of which there are few, and to rounds of bulk requests that wait for a lock.
const (
	RestPerWork      = 20
	shortRestPerWork = 4
	maxRest          = 15 * time.Second
)

// Due reports whether the item is due.
func (s Schedule) Due(id uuid.UUID, now time.Time) bool { return !now.Before(s[id]) }

// LongerDue compares two items: the one that has been due for longer comes first. Those that were never worked on come before
// all others.
func (s Schedule) LongerDue(a, b uuid.UUID) int { return s[a].Compare(s[b]) }

// Requeue makes an item due that the loop has just worked on: the company's others come before it.
func (s Schedule) Requeue(id uuid.UUID) { s[id] = time.Now() }

// Postpone schedules the next work after work that began then; least is the minimum pause.
func (s Schedule) Postpone(id uuid.UUID, start time.Time, least time.Duration) {
	s.postpone(id, start, least, RestPerWork, maxRest)
}

// PostponeBriefly is Postpone with a shorter pause.
func (s Schedule) PostponeBriefly(id uuid.UUID, start time.Time, least time.Duration) {
	s.postpone(id, start, least, shortRestPerWork, maxRest)
}

// PostponeLong is Postpone with a longer limit, after work that failed, perhaps because it takes too long.
func (s Schedule) PostponeLong(id uuid.UUID, start time.Time, least, limit time.Duration) {
	s.postpone(id, start, least, RestPerWork, limit)
}

func (s Schedule) postpone(id uuid.UUID, start time.Time, least time.Duration, perWork int, limit time.Duration) {
	now := time.Now()
	s[id] = now.Add(max(least, min(time.Duration(perWork)*now.Sub(start), limit)))
}

// Retain removes all items but these.
func (s Schedule) Retain(ids map[uuid.UUID]bool) {
	maps.DeleteFunc(s, func(id uuid.UUID, _ time.Time) bool { return !ids[id] })
}
