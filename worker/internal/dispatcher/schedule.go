package dispatcher

import (
	"container/heap"
	"math"
	"slices"
	"sync"
	"time"

	"email-gateway/shared/store/dispatch"
	lanestore "email-gateway/shared/store/lane"
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
	mu         sync.Mutex
	lanes      map[int64]*lane
	times      laneHeap                   // lanes in which a row may become due
	rechecks   laneHeap                   // lanes that are live, or being probed
	live       map[string]map[int64]*lane // by queue
	becameLive map[string]map[int64]*lane // lanes that became live since the feeder of the queue last asked
}

func newSchedule() *schedule {
	return &schedule{lanes: make(map[int64]*lane), live: make(map[string]map[int64]*lane), becameLive: make(map[string]map[int64]*lane)}
}

// all returns the live lanes of a queue, ordered by company.
func (s *schedule) all(queue string) []liveLane {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.becameLive, queue)
	return ordered(s.live[queue])
}

// added returns the lanes of the queue that became live since the last call of all or added, ordered by company.
func (s *schedule) added(queue string) []liveLane {
	s.mu.Lock()
	defer s.mu.Unlock()
	becameLive := s.becameLive[queue]
	delete(s.becameLive, queue)
	return ordered(becameLive)
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
func (s *schedule) probes(now time.Time, named []lanestore.Named) (probes []dispatch.LaneProbe) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, n := range named {
		first := dispatch.Position{NextAt: n.From}
		if l, known := s.lanes[n.ID]; known && !n.From.IsZero() && first.Before(l.since) {
			l.since = first
		}
	}
	seen := make(map[int64]bool, len(named))
	for _, n := range named {
		if seen[n.ID] {
			continue
		}
		seen[n.ID] = true
		probe := dispatch.LaneProbe{ID: n.ID}
		if l, known := s.lanes[n.ID]; known {
			probe.Since = l.since
			s.put(&s.rechecks, l, now.Add(recheck))
		}
		probes = append(probes, probe)
	}
	return probes
}

// due returns the probes of the lanes whose next poll is due.
func (s *schedule) due(now time.Time) (probes []dispatch.LaneProbe) {
	s.mu.Lock()
	defer s.mu.Unlock()
	probe := func(h *laneHeap, limit int) {
		for limit = len(probes) + limit; len(probes) < limit && len(*h) > 0 && !(*h)[0].next.After(now); {
			l := (*h)[0]
			probes = append(probes, dispatch.LaneProbe{ID: l.id, Since: l.since})
			s.put(&s.rechecks, l, now.Add(recheck))
		}
	}
	probe(&s.times, maxProbes)
	probe(&s.rechecks, max(maxProbes-len(probes), minRechecks))
	return probes
}

// apply stores the result of a poll. Lanes that were probed and not found are closed.
func (s *schedule) apply(probes []dispatch.LaneProbe, found []dispatch.WaitingLane, start time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, w := range found {
		s.found(w, start)
	}
	for _, p := range probes {
		if l, known := s.lanes[p.ID]; known && l.looked.Before(start) {
			s.closed(l, start)
		}
	}
}

// replace stores the result of a full listing. A lane that should have rows and that the listing did not find is closed or
// empty: the next poll checks it. replace returns whether there are new live lanes, or lanes that must be polled again.
func (s *schedule) replace(found []dispatch.WaitingLane, start time.Time) (wake bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, w := range found {
		wake = s.found(w, start) || wake
	}
	for _, l := range s.lanes {
		switch {
		case !l.looked.Before(start):
		case l.in != nil:
			s.setLive(l, false)
			s.put(&s.times, l, start)
		case start.Sub(l.looked) > forgetAfter:
			delete(s.lanes, l.id)
		}
	}
	return wake
}

// found stores when the first row of a lane is due. A result that is older than the lane's last poll only lowers its bound.
// found returns whether the lane has become live or must be polled again.
func (s *schedule) found(w dispatch.WaitingLane, start time.Time) (wake bool) {
	l, known := s.lanes[w.ID]
	if !known {
		l = &lane{id: w.ID, company: w.CompanyID, queue: w.Queue}
		s.lanes[l.id] = l
	}
	if l.looked.After(start) {
		if wake = w.Since.Before(l.since); wake {
			l.since = w.Since
			s.put(&s.times, l, start)
		}
		return wake
	}
	wake = w.Wait <= 0 && !l.live
	l.looked, l.since = start, w.Since
	s.setLive(l, w.Wait <= 0)
	switch {
	case l.live:
		s.put(&s.rechecks, l, start.Add(recheck))
	case math.IsInf(w.Wait, 1):
		s.rest(l, start)
	default:
		const year = 365 * 24 * 3600
		next := start.Add(time.Duration(min(w.Wait, year) * float64(time.Second)))
		if again := l.again(start); l.active(start) && again.Before(next) {
			next = again
		}
		s.put(&s.times, l, next)
	}
	return wake
}

// closed removes a lane, unless rows were taken from it recently. When the lane is open again it is read from its start,
// because workers return rows of a closed lane with their previous next_at.
func (s *schedule) closed(l *lane, start time.Time) {
	l.looked, l.since = start, dispatch.Position{}
	s.setLive(l, false)
	s.rest(l, start)
	if l.in == nil {
		delete(s.lanes, l.id)
	}
}

// rest schedules the next poll of a lane without rows while it is active, and none after that.
func (s *schedule) rest(l *lane, start time.Time) {
	if l.active(start) {
		s.put(&s.times, l, l.again(start))
	} else if l.in != nil {
		heap.Remove(l.in, l.place)
	}
}

// took stores the result of a take: the number of rows per lane, compared with the number requested. A lane that returned fewer
// is not live until the next poll. That poll is immediate, or after relist if the lane returned none, since another transaction
// has then locked its rows.
func (s *schedule) took(queue string, asked []laneShare, rows map[int64]int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	for _, v := range asked {
		n := rows[v.id]
		l := s.getOrAdd(queue, v)
		if n > 0 {
			l.took = now
		}
		if n == v.limit && l.live {
			continue
		}
		s.setLive(l, false)
		if n > 0 {
			s.put(&s.times, l, now)
		} else {
			s.put(&s.times, l, now.Add(relist))
		}
	}
}

// lower lowers the bounds of the lanes of rows that may have been released. The result of a poll that began earlier does not
// raise them.
func (s *schedule) lower(rows []dispatch.DueRow) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	for _, row := range rows {
		l, known := s.lanes[row.LaneID]
		if !known {
			continue
		}
		l.looked = now
		if first := (dispatch.Position{NextAt: row.NextAt, ID: row.ID}); first.Before(l.since) {
			l.since = first
		}
	}
}

// recheck schedules an immediate poll of these lanes.
func (s *schedule) recheck(queue string, asked []laneShare) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	for _, v := range asked {
		l := s.getOrAdd(queue, v)
		l.took, l.looked = now, now
		s.put(&s.times, l, now)
	}
}

// getOrAdd returns the lane of a laneShare, or adds it: a poll may have removed it as empty while its rows were being published.
func (s *schedule) getOrAdd(queue string, v laneShare) *lane {
	l, known := s.lanes[v.id]
	if !known {
		l = &lane{id: v.id, company: v.company, queue: queue}
		s.lanes[l.id] = l
	}
	return l
}

func (s *schedule) setLive(l *lane, live bool) {
	switch {
	case !live:
		delete(s.live[l.queue], l.id)
		delete(s.becameLive[l.queue], l.id)
	case !l.live:
		keep(s.live, l)
		keep(s.becameLive, l)
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
func (s *schedule) put(h *laneHeap, l *lane, next time.Time) {
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
