package dispatcher

import (
	"testing"
	"time"

	"github.com/google/uuid"

	"email-gateway/shared/store"
)

// position is the nth row of those that are due at the same time.
func position(at time.Time, n byte) store.Position {
	return store.Position{NextAt: at, ID: uuid.UUID{n}}
}

// beginsAt is a lane with a due row and this first row.
func beginsAt(first store.Position) []store.WaitingLane {
	return []store.WaitingLane{{ID: 1, CompanyID: companyA, Queue: "a", First: first}}
}

func TestBound(t *testing.T) {
	t.Parallel()
	at, begun := time.Now().Add(-time.Hour), time.Now()
	row := func(n byte) store.Position { return position(at, n) }
	var b bound
	for _, look := range []struct {
		name  string
		after time.Duration
		first store.Position
		want  store.Position
	}{
		{"the first poll", 0, row(5), store.Position{}},
		{"a row may still be committed before it", late - 1, row(6), store.Position{}},
		{"a row was committed before it", late, row(4), store.Position{}},
		{"another may be committed before that", 2*late - 1, row(7), store.Position{}},
		{"no row was", 2 * late, row(8), row(4)},
		{"a later row is not confirmed yet", 2*late + 1, row(9), row(4)},
		{"the later row is confirmed", 4 * late, row(9), row(8)},
		{"a listing found one before", 4*late + 1, row(3), row(3)},
	} {
		b.saw(look.first, begun.Add(look.after))
		if b.position != look.want {
			t.Errorf("%s: from %v on, want %v", look.name, b.position, look.want)
		}
	}
}

// The search for new rows gets the bounds of the lanes that have one.
func TestSchedule_Bounds(t *testing.T) {
	t.Parallel()
	a, first, begun := newSchedule(), position(time.Now(), 1), time.Now()
	for _, after := range []time.Duration{0, late} {
		a.apply(nil, append(beginsAt(first), store.WaitingLane{ID: 2, Queue: "a"}), begun.Add(after))
	}
	asked := []laneShare{{liveLane{id: 1}, boundFrom}, {liveLane{id: 2}, 1}}
	a.took("a", asked, map[int64]int{1: boundFrom, 2: 1})
	if got := a.bounds(); len(got) != 1 || got[0].ID != 1 || got[0].Since != first {
		t.Errorf("bounds %v", got)
	}
	a.replace(beginsAt(first), begun.Add(late)) // halves the flow
	if got := a.bounds(); len(got)+len(a.long) != 0 {
		t.Errorf("bounds %v, %d lanes", got, len(a.long))
	}
}

// A lane with much traffic is read from its bound, and from its start after an error.
func TestSchedule_Bound(t *testing.T) {
	t.Parallel()
	a, first, begun := newSchedule(), position(time.Now().Add(-time.Hour), 1), time.Now()
	want := func(when string, since store.Position) {
		t.Helper()
		a.apply(nil, beginsAt(first), begun)
		begun = begun.Add(late)
		a.apply(nil, beginsAt(first), begun)
		if got := a.of("a")[0].since; got != since {
			t.Errorf("%s: from %v on, want %v", when, got, since)
		}
	}
	asked := []laneShare{{liveLane{id: 1}, boundFrom - 1}}
	want("at first", store.Position{})
	a.took("a", asked, map[int64]int{1: boundFrom - 1})
	want("a short lane", store.Position{})
	asked[0].most = 1
	a.took("a", asked, map[int64]int{1: 1})
	want("a long one", first)
	a.distrust("a", asked)
	want("in doubt", store.Position{})
	a.took("a", asked, map[int64]int{1: boundFrom})
	a.replace(beginsAt(first), begun.Add(1))
	want("not much of it since the listing", store.Position{})
}

// A listing lowers the bound of a lane that a later poll has read from its bound only.
func TestSchedule_ListingLowersBound(t *testing.T) {
	t.Parallel()
	a, at, begun := newSchedule(), time.Now().Add(-time.Minute), time.Now()
	for _, after := range []time.Duration{0, late, late + 2} {
		a.apply(nil, beginsAt(position(at, 9)), begun.Add(after))
	}
	a.took("a", []laneShare{{liveLane{id: 1}, 4 * boundFrom}}, map[int64]int{1: 4 * boundFrom})
	a.replace(beginsAt(position(at, 8)), begun.Add(late+1))
	if got := a.of("a")[0].since; got != position(at, 8) {
		t.Errorf("from %v on", got)
	}
	if probes := a.due(time.Now().Add(time.Minute)); len(probes) != 1 {
		t.Errorf("%d lanes are polled", len(probes))
	}
}
