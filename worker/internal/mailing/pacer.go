package mailing

import (
	"slices"
	"time"

	"github.com/google/uuid"
)

// pacer keeps a loop from spending more than a twentieth of its time on one mailing: a
// look at a million entries is followed by a longer rest than one at a thousand.
type pacer map[uuid.UUID]time.Time

// restPerWork is how many times as long as the work the rest is. longestRest is how old
// a mailing's numbers may become: a look may have been slow because the machine was.
// shortRestPerWork is for the last looks at a mailing, of which there are few.
const (
	restPerWork      = 20
	shortRestPerWork = 4
	longestRest      = 15 * time.Second
)

func (p pacer) due(id uuid.UUID, now time.Time) bool { return !now.Before(p[id]) }

// wait begins the rest after work that began then; least is its shortest length.
func (p pacer) wait(id uuid.UUID, begun time.Time, least time.Duration) {
	p.waitFor(id, begun, least, restPerWork)
}

// waitShortly is wait with a shorter rest.
func (p pacer) waitShortly(id uuid.UUID, begun time.Time, least time.Duration) {
	p.waitFor(id, begun, least, shortRestPerWork)
}

func (p pacer) waitFor(id uuid.UUID, begun time.Time, least time.Duration, perWork int) {
	now := time.Now()
	p[id] = now.Add(max(least, min(time.Duration(perWork)*now.Sub(begun), longestRest)))
}

// keep forgets all mailings but these.
func (p pacer) keep(ids []uuid.UUID) {
	for id := range p {
		if !slices.Contains(ids, id) {
			delete(p, id)
		}
	}
}
