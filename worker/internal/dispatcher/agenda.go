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
	// maxProbes is how many lanes whose time has come one look probes: 15 ms of Postgres. Live lanes
	// are rechecked in the room that these leave, and minRechecks of them in every look, so that
	// neither waits for the other however many there are.
	maxProbes   = 1000
	minRechecks = maxProbes / 4
	// recheck is how long a lane counts as live without a look at whether it is still open.
	recheck = time.Second
	// activeFor is how long a lane is looked at again and again after rows were taken from it:
	// workers return rows that have to be tried again, without a wake-up. Rows that are returned
	// later wait for longer than the time between two listings. A lane is looked at after
	// activeEvery, and then each time that an eighth of the time since the take has passed.
	activeFor   = time.Minute
	activeEvery = 250 * time.Millisecond
	activePart  = 8
	// boundFrom is the number of rows taken between two listings from which a lane is read from its
	// bound on.
	boundFrom = 1000
)

// lane is what is known of a lane.
type lane struct {
	id      int64
	company uuid.UUID
	queue   string
	next    time.Time // when it is looked at
	in      *laneHeap // nil = none
	place   int       // in the heap
	live    bool      // the last look found a row due
	looked  time.Time // when the last look began
	took    time.Time // when rows were last taken
	flow    int       // rows taken, halved by each listing
	bound   bound
}

// since is the position from which the lane is read. A short lane is read whole.
func (l *lane) since() store.Position {
	if l.flow < boundFrom {
		return store.Position{}
	}
	return l.bound.position
}

func (l *lane) active(now time.Time) bool { return now.Sub(l.took) < activeFor }

// again is when an active lane is looked at again.
func (l *lane) again(now time.Time) time.Time {
	return now.Add(max(activeEvery, now.Sub(l.took)/activePart))
}

// liveLane is a lane in which a row is due.
type liveLane struct {
	id      int64
	company uuid.UUID
	since   store.Position
}

// agenda is the lanes by the time at which each is to be looked at.
type agenda struct {
	mu       sync.Mutex
	lanes    map[int64]*lane
	times    laneHeap                   // of lanes in which something may become due
	rechecks laneHeap                   // of lanes that are live, or that a look probes
	live     map[string]map[int64]*lane // by queue
	long     map[int64]*lane            // those that may have a bound
}

func newAgenda() *agenda {
	return &agenda{lanes: make(map[int64]*lane), live: make(map[string]map[int64]*lane), long: make(map[int64]*lane)}
}

// bounds returns the lanes that have a lower bound of next_at.
func (a *agenda) bounds() (bounds []store.LaneProbe) {
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

// of returns a queue's live lanes by company.
func (a *agenda) of(queue string) []liveLane {
	a.mu.Lock()
	defer a.mu.Unlock()
	live := make([]liveLane, 0, len(a.live[queue]))
	for _, l := range a.live[queue] {
		live = append(live, liveLane{id: l.id, company: l.company, since: l.since()})
	}
	slices.SortFunc(live, func(x, y liveLane) int {
		return cmp.Or(bytes.Compare(x.company[:], y.company[:]), cmp.Compare(x.id, y.id))
	})
	return live
}

// due returns the lanes that a look probes: those named, and those whose time has come.
func (a *agenda) due(now time.Time, named []int64) []store.LaneProbe {
	a.mu.Lock()
	defer a.mu.Unlock()
	var probes []store.LaneProbe
	for _, id := range named {
		probe := store.LaneProbe{ID: id}
		if l, known := a.lanes[id]; known {
			probe.Since = l.since()
			a.put(&a.rechecks, l, now.Add(recheck))
		}
		probes = append(probes, probe)
	}
	probe := func(h *laneHeap, most int) {
		for most = len(probes) + most; len(probes) < most && len(*h) > 0 && !(*h)[0].next.After(now); {
			l := (*h)[0]
			probes = append(probes, store.LaneProbe{ID: l.id, Since: l.since()})
			a.put(&a.rechecks, l, now.Add(recheck))
		}
	}
	before := len(probes)
	probe(&a.times, maxProbes)
	probe(&a.rechecks, max(maxProbes-(len(probes)-before), minRechecks))
	return probes
}

// apply takes what a look found in the lanes that it probed and in others.
func (a *agenda) apply(probes []store.LaneProbe, found []store.WaitingLane, begun time.Time) {
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

// replace takes a full listing. What was found by a look begun after it stays.
func (a *agenda) replace(found []store.WaitingLane, begun time.Time) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, w := range found {
		l, known := a.lanes[w.ID]
		if !known || l.looked.Before(begun) {
			a.found(w, begun)
			continue
		}
		if l.bound.lower(w.First) { // the look since then read the lane from its bound only
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

// found notes when a lane's first row is due.
func (a *agenda) found(w store.WaitingLane, begun time.Time) {
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

// empty notes that a lane is closed or holds no row. It is read from its start when it is found
// again: workers return the rows of a closed lane with the next_at that they had.
func (a *agenda) empty(l *lane, begun time.Time) {
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

// took notes a take: of each of these lanes of a queue so many rows, where most were asked for. A
// lane that gave fewer is not live until it was looked at: at once, or soon if it gave none,
// since another transaction then holds its rows.
func (a *agenda) took(queue string, asked []visit, rows map[int64]int) {
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

// doubt has these lanes looked at next, from their start: rows may have been released.
func (a *agenda) doubt(queue string, asked []visit) {
	a.mu.Lock()
	defer a.mu.Unlock()
	now := time.Now()
	for _, v := range asked {
		l := a.visited(queue, v)
		l.flow, l.bound, l.took = 0, bound{}, now
		a.put(&a.times, l, now)
	}
}

// visited returns the lane of a visit. A look may have found it empty while its rows were being
// published.
func (a *agenda) visited(queue string, v visit) *lane {
	l, known := a.lanes[v.id]
	if !known {
		l = &lane{id: v.id, company: v.company, queue: queue}
		a.lanes[l.id] = l
	}
	return l
}

func (a *agenda) setLive(l *lane, live bool) {
	if l.live = live; !live {
		delete(a.live[l.queue], l.id)
		return
	}
	if a.live[l.queue] == nil {
		a.live[l.queue] = make(map[int64]*lane)
	}
	a.live[l.queue][l.id] = l
}

// put sets the time of the lane's next look, in one of the agenda's heaps.
func (a *agenda) put(h *laneHeap, l *lane, next time.Time) {
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

// laneHeap is lanes by next.
type laneHeap []*lane

func (h laneHeap) Len() int           { return len(h) }
func (h laneHeap) Less(i, j int) bool { return h[i].next.Before(h[j].next) }
func (h laneHeap) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].place, h[j].place = i, j
}

// Push implements heap.Interface.
func (h *laneHeap) Push(x any) {
	l := x.(*lane) //nolint:forcetypeassert // nothing else is pushed
	l.place = len(*h)
	*h = append(*h, l)
}

// Pop implements heap.Interface.
func (h *laneHeap) Pop() any {
	last := len(*h) - 1
	l := (*h)[last]
	*h, l.in = (*h)[:last], nil
	return l
}
