package dispatcher

import (
	"math"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/uuid"

	"email-gateway/shared/store/dispatch"
	lanestore "email-gateway/shared/store/lane"
)

// position is the nth row of those that are due at the same time.
func position(at time.Time, n byte) dispatch.Position {
	return dispatch.Position{NextAt: at, ID: uuid.UUID{n}}
}

// beginsAt is a lane with a due row that is read from this position on next time.
func beginsAt(since dispatch.Position) []dispatch.WaitingLane {
	return []dispatch.WaitingLane{{ID: 1, CompanyID: companyA, Queue: "a", Since: since}}
}

// emptyFrom is an open lane without rows that is read from this position on next time.
func emptyFrom(since dispatch.Position) []dispatch.WaitingLane {
	return []dispatch.WaitingLane{{ID: 1, CompanyID: companyA, Queue: "a", Wait: math.Inf(1), Since: since}}
}

// sinceOf is the position from which the next poll reads lane 1.
func sinceOf(a *schedule) dispatch.Position {
	return a.probes(time.Now(), []lanestore.Named{{ID: 1}})[0].Since
}

// A lane keeps its lower bound while it is open, with or without rows, and is read from its start after it was closed.
func TestSchedule_Bound(t *testing.T) {
	t.Parallel()
	a, at, start := newSchedule(), time.Now().Add(-time.Hour), time.Now()
	probes := []dispatch.LaneProbe{{ID: 1}}
	for _, poll := range []struct {
		name  string
		found []dispatch.WaitingLane
		want  dispatch.Position
	}{
		{"with a row", beginsAt(position(at, 1)), position(at, 1)},
		{"with a later row", beginsAt(position(at, 2)), position(at, 2)},
		{"empty", emptyFrom(position(at.Add(time.Minute), 0)), position(at.Add(time.Minute), 0)},
		{"with a row again", beginsAt(position(at.Add(time.Hour), 0)), position(at.Add(time.Hour), 0)},
		{"closed", nil, dispatch.Position{}},
		{"with a row that was returned while it was closed", beginsAt(position(at, 3)), position(at, 3)},
	} {
		start = start.Add(time.Second)
		a.apply(probes, poll.found, start)
		if got := sinceOf(a); got != poll.want {
			t.Errorf("%s: from %v on, want %v", poll.name, got, poll.want)
		}
	}
}

// A lane that is drained by each take keeps its bound between the takes.
func TestSchedule_BoundOfDrainedLane(t *testing.T) {
	t.Parallel()
	a, start := newSchedule(), time.Now()
	asked := []laneShare{{liveLane{id: 1, company: companyA}, 5}}
	for n := range byte(3) {
		since := position(start, n)
		a.apply(nil, beginsAt(since), start)
		if got := a.all("a")[0].since; got != since {
			t.Errorf("take %d starts at %v, want %v", n, got, since)
		}
		a.took("a", asked, map[int64]int{1: 1})
		if got := sinceOf(a); got != since {
			t.Errorf("the poll after take %d starts at %v, want %v", n, got, since)
		}
	}
}

// Released rows lower the bounds of their lanes, and no others. A poll that began before the release does not raise them.
func TestSchedule_BoundAfterRelease(t *testing.T) {
	t.Parallel()
	a, at, start := newSchedule(), time.Now().Add(-time.Hour), time.Now()
	found := append(beginsAt(position(at, 5)), dispatch.WaitingLane{ID: 2, Queue: "a", Since: position(at, 5)})
	a.apply(nil, found, start)
	a.lower([]dispatch.DueRow{
		{LaneID: 1, NextAt: at, ID: uuid.UUID{4}}, {LaneID: 1, NextAt: at, ID: uuid.UUID{3}}, {LaneID: 1, NextAt: at, ID: uuid.UUID{6}}, {LaneID: 9, NextAt: at},
	})
	want := func(when string, first, second dispatch.Position) {
		t.Helper()
		if probes := a.probes(start, []lanestore.Named{{ID: 1}, {ID: 2}}); probes[0].Since != first || probes[1].Since != second {
			t.Errorf("%s: the lanes are read from %v and %v on", when, probes[0].Since, probes[1].Since)
		}
	}
	want("after the release", position(at, 3), position(at, 5))
	a.apply(nil, []dispatch.WaitingLane{{ID: 1, Queue: "a", Since: position(at, 8)}}, start)
	want("after a poll that began before it", position(at, 3), position(at, 5))
	a.apply(nil, []dispatch.WaitingLane{{ID: 1, Queue: "a", Since: position(at, 8)}}, time.Now().Add(time.Second))
	want("after a poll that began later", position(at, 8), position(at, 5))
}

// A wake-up about a returned row lowers the bound of its lane, and one about new rows does not.
func TestSchedule_BoundAfterWakeUp(t *testing.T) {
	t.Parallel()
	a, at := newSchedule(), time.Now().Add(-time.Hour)
	a.apply(nil, emptyFrom(position(at, 5)), time.Now())
	for _, step := range []struct {
		name string
		from time.Time
		want dispatch.Position
	}{
		{"new rows", time.Time{}, position(at, 5)},
		{"a later row", at.Add(time.Second), position(at, 5)},
		{"an earlier row", at.Add(-time.Second), position(at.Add(-time.Second), 0)},
	} {
		if probes := a.probes(time.Now(), []lanestore.Named{{ID: 1, From: step.from}}); probes[0].Since != step.want {
			t.Errorf("%s: from %v on, want %v", step.name, probes[0].Since, step.want)
		}
	}
}

// A lane that is named several times is probed once, from the earliest row that was returned to it.
func TestSchedule_NamedTwice(t *testing.T) {
	t.Parallel()
	a, at := newSchedule(), time.Now().Add(-time.Hour)
	a.apply(nil, emptyFrom(position(at, 5)), time.Now())
	earlier := at.Add(-time.Second)
	named := []lanestore.Named{{ID: 1}, {ID: 2}, {ID: 1, From: earlier}, {ID: 2, From: at}, {ID: 1, From: at}}
	want := []dispatch.LaneProbe{{ID: 1, Since: position(earlier, 0)}, {ID: 2}}
	if got := a.probes(time.Now(), named); !slices.Equal(got, want) {
		t.Errorf("probes %v, want %v", got, want)
	}
}

// A listing lowers the bound of a lane that a later poll has read from its bound only, and keeps that of a lane without rows.
func TestSchedule_BoundAfterListing(t *testing.T) {
	t.Parallel()
	a, at, start := newSchedule(), time.Now().Add(-time.Minute), time.Now()
	a.apply(nil, emptyFrom(position(at, 9)), start.Add(time.Second))
	a.replace(beginsAt(position(at, 8)), start)
	if got := sinceOf(a); got != position(at, 8) {
		t.Errorf("from %v on", got)
	}
	a.replace(beginsAt(position(at, 8)), start)
	if probes := a.due(start.Add(time.Minute)); len(probes) != 1 {
		t.Errorf("%d lanes are polled", len(probes))
	}
	a.apply(nil, emptyFrom(position(at, 9)), start.Add(2*time.Second))
	a.replace(nil, start.Add(forgetAfter))
	if got := sinceOf(a); got != position(at, 9) {
		t.Errorf("after a listing without the lane: from %v on", got)
	}
	a.apply(nil, emptyFrom(position(at, 9)), start.Add(3*time.Second))
	a.replace(nil, start.Add(forgetAfter+4*time.Second))
	if len(a.lanes) > 0 {
		t.Error("a lane without rows is never forgotten")
	}
}

// Due lanes are polled however many live lanes must be rechecked, and the other way round.
func TestSchedule_RechecksAndDueLanes(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct{ live, due int }{"many live": {5 * maxProbes, 10}, "many due": {10, 5 * maxProbes}} {
		a, start := newSchedule(), time.Now()
		var found []dispatch.WaitingLane
		for id := range tt.live {
			found = append(found, dispatch.WaitingLane{ID: int64(id), Queue: "a"})
		}
		for id := range tt.due {
			found = append(found, dispatch.WaitingLane{ID: int64(tt.live + id), Queue: "a", Wait: 10})
		}
		a.apply(nil, found, start)
		live, due := 0, 0
		for _, p := range a.due(start.Add(time.Minute)) {
			if p.ID < int64(tt.live) {
				live++
			} else {
				due++
			}
		}
		if live < min(tt.live, minRechecks) || due < min(tt.due, maxProbes) || live+due > maxProbes+minRechecks {
			t.Errorf("%s: %d live lanes and %d others are polled", name, live, due)
		}
	}
}

// A poll during publishing finds the lane empty. Rows released afterwards are found.
func TestSchedule_ReleasedAfterPoll(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]func(a *schedule, asked []laneShare){
		"released": func(a *schedule, asked []laneShare) { a.recheck("a", asked) },
		"taken":    func(a *schedule, asked []laneShare) { a.took("a", asked, map[int64]int{1: 1}) },
	} {
		a := newSchedule()
		a.apply(nil, []dispatch.WaitingLane{{ID: 1, CompanyID: companyA, Queue: "a"}}, time.Now())
		a.apply([]dispatch.LaneProbe{{ID: 1}}, nil, time.Now().Add(time.Millisecond))
		if len(a.lanes) != 0 {
			t.Fatalf("%s: %d lanes after an empty poll", name, len(a.lanes))
		}
		end(a, []laneShare{{liveLane{id: 1, company: companyA}, 5}})
		if probes := a.due(time.Now()); len(probes) != 1 || probes[0].ID != 1 {
			t.Errorf("%s: %v are polled", name, probes)
		}
	}
}

// A lane is polled for a while after a take, with growing intervals.
func TestSchedule_ActiveLane(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		a := newSchedule()
		a.apply(nil, []dispatch.WaitingLane{{ID: 1, Queue: "a"}}, time.Now())
		a.took("a", []laneShare{{liveLane{id: 1}, 5}}, map[int64]int{1: 1})
		looks, gap, last := 0, time.Duration(0), time.Now()
		for range 10 * 60 * 2 {
			<-time.After(100 * time.Millisecond)
			if probes := a.due(time.Now()); len(probes) > 0 {
				looks++
				gap, last = max(gap, time.Since(last)), time.Now()
				a.apply(probes, nil, time.Now())
			}
		}
		if looks < 10 || looks > 60 || gap > activeFor/activePart+time.Second || len(a.lanes)+len(a.times)+len(a.rechecks) > 0 {
			t.Errorf("%d polls, %s between two; %d lanes are left", looks, gap, len(a.lanes))
		}
	})
}
