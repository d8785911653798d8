package dispatcher

import (
	"container/heap"
	"math"
	"slices"
	"sync"
	"time"

	"email-gateway/shared/store"
)

const (
	// maxProbes is how many due lanes one poll probes: 15 ms of Postgres. Live lanes are rechecked
	// with the rest of that budget, and at least minRechecks of them in every poll, so that neither
	// kind starves the other.
	maxProbes   = 1000
	minRechecks = maxProbes / 4
	// recheck is how long a lane counts as live without another probe.
	recheck = time.Second
	// forgetAfter is how long a lane without rows keeps its lower bound.
	forgetAfter = time.Hour
)

// schedule orders the lanes by the time of their next poll.
type schedule struct {
	mu       sync.Mutex
	lanes    map[int64]*lane
	times    laneHeap                   // lanes in which a row may become due
	rechecks laneHeap                   // lanes that are live, or being probed
	live     map[string]map[int64]*lane // by queue
	turned   map[string]map[int64]*lane // lanes that became live since the feeder of the queue last asked
}

func newSchedule() *schedule {
	return &schedule{lanes: make(map[int64]*lane), live: make(map[string]map[int64]*lane), turned: make(map[string]map[int64]*lane)}
}

// of returns the live lanes of a queue, ordered by company.
func (a *schedule) of(queue string) []liveLane {
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.turned, queue)
	return ordered(a.live[queue])
}

// added returns the lanes of the queue that became live since the last call of "of" or added, ordered by company.
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
		live = append(live, liveLane{id: l.id, company: l.company, since: l.since})
	}
	slices.SortFunc(live, liveLane.compare)
	return live
}

// probes returns a probe of each named lane, and lowers the bounds of lanes to which rows were returned.
func (a *schedule) probes(now time.Time, named []store.NamedLane) (probes []store.LaneProbe) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, n := range named {
		first := store.Position{NextAt: n.From}
		if l, known := a.lanes[n.ID]; known && !n.From.IsZero() && first.Before(l.since) {
			l.since = first
		}
	}
	seen := make(map[int64]bool, len(named))
	for _, n := range named {
		if seen[n.ID] {
			continue
		}
		seen[n.ID] = true
		probe := store.LaneProbe{ID: n.ID}
		if l, known := a.lanes[n.ID]; known {
			probe.Since = l.since
			a.put(&a.rechecks, l, now.Add(recheck))
		}
		probes = append(probes, probe)
	}
	return probes
}

// due returns the probes of the lanes whose next poll is due.
func (a *schedule) due(now time.Time) (probes []store.LaneProbe) {
	a.mu.Lock()
	defer a.mu.Unlock()
	probe := func(h *laneHeap, most int) {
		for most = len(probes) + most; len(probes) < most && len(*h) > 0 && !(*h)[0].next.After(now); {
			l := (*h)[0]
			probes = append(probes, store.LaneProbe{ID: l.id, Since: l.since})
			a.put(&a.rechecks, l, now.Add(recheck))
		}
	}
	probe(&a.times, maxProbes)
	probe(&a.rechecks, max(maxProbes-len(probes), minRechecks))
	return probes
}

// apply stores the result of a poll. Lanes that were probed and not found are closed.
func (a *schedule) apply(probes []store.LaneProbe, found []store.WaitingLane, begun time.Time) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, w := range found {
		a.found(w, begun)
	}
	for _, p := range probes {
		if l, known := a.lanes[p.ID]; known && l.looked.Before(begun) {
			a.closed(l, begun)
		}
	}
}

// replace stores the result of a full listing. A lane that should have rows and that the listing did not find is closed or
// empty: the next poll checks it. replace returns whether there are new live lanes, or lanes that must be polled again.
func (a *schedule) replace(found []store.WaitingLane, begun time.Time) (turned bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, w := range found {
		turned = a.found(w, begun) || turned
	}
	for _, l := range a.lanes {
		switch {
		case !l.looked.Before(begun):
		case l.in != nil:
			a.setLive(l, false)
			a.put(&a.times, l, begun)
		case begun.Sub(l.looked) > forgetAfter:
			delete(a.lanes, l.id)
		}
	}
	return turned
}

// found stores when the first row of a lane is due. A result that is older than the lane's last poll only lowers its bound.
// found returns whether the lane has become live or must be polled again.
func (a *schedule) found(w store.WaitingLane, begun time.Time) (turned bool) {
	l, known := a.lanes[w.ID]
	if !known {
		l = &lane{id: w.ID, company: w.CompanyID, queue: w.Queue}
		a.lanes[l.id] = l
	}
	if l.looked.After(begun) {
		if turned = w.Since.Before(l.since); turned {
			l.since = w.Since
			a.put(&a.times, l, begun)
		}
		return turned
	}
	turned = w.Wait <= 0 && !l.live
	l.looked, l.since = begun, w.Since
	a.setLive(l, w.Wait <= 0)
	switch {
	case l.live:
		a.put(&a.rechecks, l, begun.Add(recheck))
	case math.IsInf(w.Wait, 1):
		a.rest(l, begun)
	default:
		const year = 365 * 24 * 3600
		next := begun.Add(time.Duration(min(w.Wait, year) * float64(time.Second)))
		if again := l.again(begun); l.active(begun) && again.Before(next) {
			next = again
		}
		a.put(&a.times, l, next)
	}
	return turned
}

// closed removes a lane, unless rows were taken from it recently. When the lane is open again it is read from its start,
// because workers return rows of a closed lane with their previous next_at.
func (a *schedule) closed(l *lane, begun time.Time) {
	l.looked, l.since = begun, store.Position{}
	a.setLive(l, false)
	a.rest(l, begun)
	if l.in == nil {
		delete(a.lanes, l.id)
	}
}

// rest schedules the next poll of a lane without rows while it is active, and none after that.
func (a *schedule) rest(l *lane, begun time.Time) {
	if l.active(begun) {
		a.put(&a.times, l, l.again(begun))
	} else if l.in != nil {
		heap.Remove(l.in, l.place)
	}
}

// took stores the result of a take: the number of rows per lane, compared with the number requested. A lane that returned fewer
// is not live until the next poll. That poll is immediate, or after relist if the lane returned none, since another transaction
// has then locked its rows.
func (a *schedule) took(queue string, asked []laneShare, rows map[int64]int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	now := time.Now()
	for _, v := range asked {
		n := rows[v.id]
		l := a.visited(queue, v)
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

// lower lowers the bounds of the lanes of rows that may have been released. The result of a poll that began earlier does not
// raise them.
func (a *schedule) lower(rows []store.DueRow) {
	a.mu.Lock()
	defer a.mu.Unlock()
	now := time.Now()
	for _, row := range rows {
		l, known := a.lanes[row.LaneID]
		if !known {
			continue
		}
		l.looked = now
		if first := (store.Position{NextAt: row.NextAt, ID: row.ID}); first.Before(l.since) {
			l.since = first
		}
	}
}

// recheck schedules an immediate poll of these lanes.
func (a *schedule) recheck(queue string, asked []laneShare) {
	a.mu.Lock()
	defer a.mu.Unlock()
	now := time.Now()
	for _, v := range asked {
		l := a.visited(queue, v)
		l.took, l.looked = now, now
		a.put(&a.times, l, now)
	}
}

// visited returns the lane of a laneShare, or adds it: a poll may have removed it as empty while its rows were being published.
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
