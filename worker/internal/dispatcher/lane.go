package dispatcher

import (
	"bytes"
	"cmp"
	"time"

	"github.com/google/uuid"

	"email-gateway/shared/store/dispatch"
)

const (
	// activeFor is how long a lane is polled after rows were taken from it, because workers return rows for a retry without a
	// wake-up. A row that becomes due later has waited for longer than the interval of listings, so one of them has found it.
	// The first poll is after activeEvery, each further one after 1/activePart of the time since the take.
	activeFor   = time.Minute
	activeEvery = 250 * time.Millisecond
	activePart  = 8
)

// lane is the state of a lane in the schedule.
type lane struct {
	id      int64
	company uuid.UUID
	queue   string
	next    time.Time // time of the next poll
	in      *laneHeap // the heap that contains the lane; nil = none
	place   int       // index in that heap
	live    bool      // the last poll found a due row
	took    time.Time // when rows were last taken
	// since is a lower bound of the positions of the lane's rows; zero = unknown. Polls and takes
	// start there, so that they do not read the index entries of taken rows, which an old snapshot
	// keeps. The full listing finds rows that appear before it and lowers it.
	since dispatch.Position
	// looked is when the last poll began, or when rows were last released, if that was later.
	looked time.Time
}

func (l *lane) active(now time.Time) bool { return now.Sub(l.took) < activeFor }

// again returns the time of an active lane's next poll.
func (l *lane) again(now time.Time) time.Time {
	return now.Add(max(activeEvery, now.Sub(l.took)/activePart))
}

// liveLane is a lane with a due row.
type liveLane struct {
	id      int64
	company uuid.UUID
	since   dispatch.Position
}

// compare orders lanes by company and id.
func (l liveLane) compare(other liveLane) int {
	return cmp.Or(bytes.Compare(l.company[:], other.company[:]), cmp.Compare(l.id, other.id))
}
