package dispatcher

import (
	"bytes"
	"cmp"
	"container/heap"
	"slices"
	"sync"
	"time"

	"github.com/google/uuid"

	"email-gateway/shared/store"
)

const (
	// maxProbes is how many due lanes one poll probes: 15 ms of Postgres. Live lanes are rechecked
	// with the rest of that budget, and at least minRechecks of them in every poll, so that neither
	// kind starves the other.
	maxProbes   = 1000
	minRechecks = maxProbes / 4
	// recheck is how long a lane counts as live without checking that it is still open.
	recheck = time.Second
	// activeFor is how long a lane is polled after rows were taken from it, because workers return
	// rows for a retry without a wake-up. Rows returned later are delayed for longer than the time
	// between two listings. The first poll is after activeEvery, each further one after
	// 1/activePart of the time since the take.
	activeFor   = time.Minute
	activeEvery = 250 * time.Millisecond
	activePart  = 8
	// boundFrom is the number of rows taken between two listings from which on a lane is read from
	// its bound.
	boundFrom = 1000
)

// lane is what the dispatcher knows about a lane.
type lane struct {
	id      int64
	company uuid.UUID
	queue   string
	next    time.Time // next poll
	in      *laneHeap // the heap it is in; nil = none
	place   int       // index in that heap
	live    bool      // the last poll found a due row
	looked  time.Time // when the last poll began
	took    time.Time // when rows were last taken
	flow    int       // rows taken, halved by each listing
	bound   bound
}

// since is the position from which the lane is read: the start for a lane with little traffic.
func (l *lane) since() store.Position {
	if l.flow < boundFrom {
		return store.Position{}
	}
	return l.bound.position
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
	since   store.Position
}

// compare orders lanes by company.
func (l liveLane) compare(other liveLane) int {
	return cmp.Or(bytes.Compare(l.company[:], other.company[:]), cmp.Compare(l.id, other.id))
}

// schedule orders the lanes by the time of their next poll.
type schedule struct {
	mu       sync.Mutex
	lanes    map[int64]*lane
	times    laneHeap                   // lanes in which a row may become due
	rechecks laneHeap                   // lanes that are live, or being probed
	live     map[string]map[int64]*lane // by queue
	turned   map[string]map[int64]*lane // those that became live since the queue's feeder last asked
	long     map[int64]*lane            // lanes that may have a bound
}

func newSchedule() *schedule {
	return &schedule{
		lanes: make(map[int64]*lane), live: make(map[string]map[int64]*lane), turned: make(map[string]map[int64]*lane), long: make(map[int64]*lane),
	}
}

// bounds returns the lanes that have a lower bound of next_at.
func (a *schedule) bounds() (bounds []store.LaneProbe) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for id, l := range a.long {
		if l.flow < boundFrom {
			delete(a.long, id)
		} else if since := l.since(); since != (store.Position{}) {
			bounds = append(bounds, store.LaneProbe{ID: id, Since: since})
		}
	}
	return bounds
}

// of returns a queue's live lanes, ordered by company.
func (a *schedule) of(queue string) []liveLane {
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.turned, queue)
	return ordered(a.live[queue])
}

// added returns the queue's lanes that became live since the last call of of or added, ordered by company.
func (a *schedule) added(queue string) []liveLane {
	a.mu.Lock()
	defer a.mu.Unlock()
	turned := a.turned[queue]
	delete(a.turned, queue)
	return ordered(turned)
}

func ordered(lanes map[int64]*lane) []liveLane {
	live := make([]liveLane, 0, len(lanes))
	for _, l := range lanes {
		live = append(live, liveLane{id: l.id, company: l.company, since: l.since()})
	}
	slices.SortFunc(live, liveLane.compare)
	return live
}

// probes returns what a poll of the named lanes must probe.
func (a *schedule) probes(now time.Time, named []int64) (probes []store.LaneProbe) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, id := range named {
		probe := store.LaneProbe{ID: id}
		if l, known := a.lanes[id]; known {
			probe.Since = l.since()
			a.put(&a.rechecks, l, now.Add(recheck))
		}
		probes = append(probes, probe)
	}
	return probes
}

// due returns the lanes whose time to be probed has come.
func (a *schedule) due(now time.Time) (probes []store.LaneProbe) {
	a.mu.Lock()
	defer a.mu.Unlock()
	probe := func(h *laneHeap, most int) {
		for most = len(probes) + most; len(probes) < most && len(*h) > 0 && !(*h)[0].next.After(now); {
			l := (*h)[0]
			probes = append(probes, store.LaneProbe{ID: l.id, Since: l.since()})
			a.put(&a.rechecks, l, now.Add(recheck))
		}
	}
	probe(&a.times, maxProbes)
	probe(&a.rechecks, max(maxProbes-len(probes), minRechecks))
	return probes
}

// apply stores the result of a poll: the lanes it found, and those it probed without finding a row.
func (a *schedule) apply(probes []store.LaneProbe, found []store.WaitingLane, begun time.Time) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, w := range found {
		a.found(w, begun)
	}
	for _, p := range probes {
		if l, known := a.lanes[p.ID]; known && l.looked.Before(begun) {
			a.empty(l, begun)
		}
	}
}

// replace stores the result of a full listing. Results of polls that began later are kept.
func (a *schedule) replace(found []store.WaitingLane, begun time.Time) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, w := range found {
		l, known := a.lanes[w.ID]
		if !known || l.looked.Before(begun) {
			a.found(w, begun)
			continue
		}
		if l.bound.lower(w.First) { // the later poll read the lane from its bound only
			a.put(&a.times, l, begun)
		}
	}
	for _, l := range a.lanes {
		if l.looked.Before(begun) {
			a.empty(l, begun)
		}
		l.flow /= 2
	}
}

// found stores when a lane's first row is due.
func (a *schedule) found(w store.WaitingLane, begun time.Time) {
	l, known := a.lanes[w.ID]
	if !known {
		l = &lane{id: w.ID, company: w.CompanyID, queue: w.Queue}
		a.lanes[l.id] = l
	}
	l.looked = begun
	l.bound.saw(w.First, begun)
	a.setLive(l, w.Wait <= 0)
	if l.live {
		a.put(&a.rechecks, l, begun.Add(recheck))
		return
	}
	const year = 365 * 24 * 3600
	next := begun.Add(time.Duration(min(w.Wait, year) * float64(time.Second)))
	if again := l.again(begun); l.active(begun) && again.Before(next) {
		next = again
	}
	a.put(&a.times, l, next)
}

// empty marks a lane as closed or without rows. It is read from its start when it has rows again:
// workers return rows of a closed lane with the next_at that they had.
func (a *schedule) empty(l *lane, begun time.Time) {
	l.looked, l.flow, l.bound = begun, 0, bound{}
	a.setLive(l, false)
	if l.active(begun) {
		a.put(&a.times, l, l.again(begun))
		return
	}
	if l.in != nil {
		heap.Remove(l.in, l.place)
	}
	delete(a.lanes, l.id)
	delete(a.long, l.id)
}

// took stores the result of a take: the number of rows per lane, compared with the number asked
// for. A lane that returned fewer is not live until the next poll: an immediate one, or one after
// relist if it returned none, since another transaction then holds its rows.
func (a *schedule) took(queue string, asked []laneShare, rows map[int64]int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	now := time.Now()
	for _, v := range asked {
		n := rows[v.id]
		l := a.visited(queue, v)
		if l.flow += n; l.flow >= boundFrom {
			a.long[l.id] = l
		}
		if n > 0 {
			l.took = now
		}
		if n == v.most && l.live {
			continue
		}
		a.setLive(l, false)
		if n > 0 {
			a.put(&a.times, l, now)
		} else {
			a.put(&a.times, l, now.Add(relist))
		}
	}
}

// distrust schedules an immediate poll of these lanes from their start: rows may have been
// released.
func (a *schedule) distrust(queue string, asked []laneShare) {
	a.mu.Lock()
	defer a.mu.Unlock()
	now := time.Now()
	for _, v := range asked {
		l := a.visited(queue, v)
		l.flow, l.bound, l.took = 0, bound{}, now
		a.put(&a.times, l, now)
	}
}

// visited returns the lane of a laneShare. A poll may have removed it as empty while its rows were
// being published.
func (a *schedule) visited(queue string, v laneShare) *lane {
	l, known := a.lanes[v.id]
	if !known {
		l = &lane{id: v.id, company: v.company, queue: queue}
		a.lanes[l.id] = l
	}
	return l
}

func (a *schedule) setLive(l *lane, live bool) {
	switch {
	case !live:
		delete(a.live[l.queue], l.id)
		delete(a.turned[l.queue], l.id)
	case !l.live:
		keep(a.live, l)
		keep(a.turned, l)
	}
	l.live = live
}

func keep(lanes map[string]map[int64]*lane, l *lane) {
	if lanes[l.queue] == nil {
		lanes[l.queue] = make(map[int64]*lane)
	}
	lanes[l.queue][l.id] = l
}

// put sets the time of the lane's next poll in one of the schedule's heaps.
func (a *schedule) put(h *laneHeap, l *lane, next time.Time) {
	if l.in != nil && l.in != h {
		heap.Remove(l.in, l.place)
	}
	if l.next = next; l.in == h {
		heap.Fix(h, l.place)
		return
	}
	heap.Push(h, l)
	l.in = h
}
