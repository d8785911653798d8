package mailing

import (
	"maps"
	"time"

	"github.com/google/uuid"
)

// pacer limits a loop to a twentieth of its time per mailing: counting a million entries is
// followed by a longer pause than counting a thousand.
type pacer map[uuid.UUID]time.Time

// restPerWork is the pause as a multiple of the work's duration. longestRest limits the age of the
// numbers of a mailing that changes: a count may be slow because the machine is. shortRestPerWork applies to the
// last counts of a mailing, of which there are few.
const (
	restPerWork      = 20
	shortRestPerWork = 4
	longestRest      = 15 * time.Second
)

func (p pacer) due(id uuid.UUID, now time.Time) bool { return !now.Before(p[id]) }

// longerDue compares two mailings: the one that has been due for longer comes first. Those that were never worked on come before
// all others.
func (p pacer) longerDue(a, b uuid.UUID) int { return p[a].Compare(p[b]) }

// worked makes a mailing due that the loop has just worked on: the company's others come before it.
func (p pacer) worked(id uuid.UUID) { p[id] = time.Now() }

// wait schedules the next work after work that began then; least is the minimum pause.
func (p pacer) wait(id uuid.UUID, start time.Time, least time.Duration) {
	p.waitFor(id, start, least, restPerWork, longestRest)
}

// waitShortly is wait with a shorter pause.
func (p pacer) waitShortly(id uuid.UUID, start time.Time, least time.Duration) {
	p.waitFor(id, start, least, shortRestPerWork, longestRest)
}

// waitLong is wait after work that failed, perhaps because it takes too long.
func (p pacer) waitLong(id uuid.UUID, start time.Time, least time.Duration) {
	p.waitFor(id, start, least, restPerWork, idleLimit)
}

func (p pacer) waitFor(id uuid.UUID, start time.Time, least time.Duration, perWork int, limit time.Duration) {
	now := time.Now()
	p[id] = now.Add(max(least, min(time.Duration(perWork)*now.Sub(start), limit)))
}

// keep removes all mailings but these.
func (p pacer) keep(ids map[uuid.UUID]bool) {
	maps.DeleteFunc(p, func(id uuid.UUID, _ time.Time) bool { return !ids[id] })
}
