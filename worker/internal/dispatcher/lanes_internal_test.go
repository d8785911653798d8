package dispatcher

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"

	"email-gateway/shared/email"
	"email-gateway/shared/store/dispatch"
	lanestore "email-gateway/shared/store/lane"
)

// listing answers WaitingLanes, ProbeLanes and NewLanes and counts the calls.
type listing struct {
	Store
	found  dispatch.WaitingLanes
	err    error
	listed int
	during func()  // runs during a listing
	made   []int64 // lanes of new rows
	probed []int64 // by the last probe
	since  []dispatch.Position
	looks  int
}

func (l *listing) WaitingLanes(context.Context) (dispatch.WaitingLanes, error) {
	l.listed++
	found, err := l.found, l.err
	if l.during != nil {
		l.during()
	}
	return found, err
}

func (l *listing) NewLanes(context.Context, time.Duration) ([]int64, error) { return l.made, l.err }

func (l *listing) ProbeLanes(_ context.Context, lanes []dispatch.LaneProbe) (dispatch.WaitingLanes, error) {
	l.looks++
	l.probed, l.since = nil, nil
	found := dispatch.WaitingLanes{BreakerClosed: l.found.BreakerClosed}
	for _, p := range lanes {
		l.probed, l.since = append(l.probed, p.ID), append(l.since, p.Since)
		for _, w := range l.found.Lanes {
			if w.ID == p.ID {
				found.Lanes = append(found.Lanes, w)
			}
		}
	}
	slices.Sort(l.probed)
	return found, l.err
}

// heard simulates a listener and the wake-ups it received.
type heard struct {
	named []int64
	all   bool
	deaf  bool
}

func (h *heard) Woken() <-chan struct{} { return nil }
func (h *heard) Listening() bool        { return !h.deaf }

func (h *heard) Named() (lanes []lanestore.Named, all bool) {
	for _, id := range h.named {
		lanes = append(lanes, lanestore.Named{ID: id})
	}
	all = h.all
	h.named, h.all = nil, false
	return lanes, all
}

var companyA = uuid.UUID{1}

func waiting(id int64, queue string, wait float64) dispatch.WaitingLane {
	return dispatch.WaitingLane{ID: id, CompanyID: companyA, Queue: queue, Wait: wait, Since: dispatch.Position{NextAt: time.Now()}}
}

// listed makes lanes that have listed all lanes once.
func listed(t *testing.T, outbox *listing, wakes Wakes, interval time.Duration) *lanes {
	t.Helper()
	l := newLanes(outbox, wakes, interval)
	if _, err := l.list(t.Context()); err != nil {
		t.Fatal(err)
	}
	return l
}

// requested reports whether a listing was requested since the last call.
func requested(l *lanes) bool {
	select {
	case <-l.requests:
		return true
	default:
		return false
	}
}

func ids(live []liveLane) (ids []int64) {
	for _, l := range live {
		ids = append(ids, l.id)
	}
	return ids
}

func TestLanes_OnePollForAllFeeders(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		outbox := &listing{found: dispatch.WaitingLanes{BreakerClosed: true, Lanes: []dispatch.WaitingLane{waiting(1, "a", 0), waiting(2, "a", -1), waiting(3, "b", 0), waiting(4, "b", 9)}}}
		l := listed(t, outbox, nil, 0)
		expect := func(when string, looks int) {
			t.Helper()
			for queue, want := range map[string][]int64{"a": {1, 2}, "b": {3}, "c": nil} {
				got, _, err := l.live(t.Context(), queue)
				if err != nil || !cmp.Equal(want, ids(got)) {
					t.Errorf("%s, %s: %v, %v", when, queue, got, err)
				}
			}
			if outbox.looks != looks {
				t.Errorf("%s: %d polls, want %d", when, outbox.looks, looks)
			}
		}
		expect("at first", 1)
		expect("soon after", 1)
		l.invalidate()
		<-time.After(time.Millisecond) // the test bubble's clock
		expect("after a wake-up", 2)
		<-time.After(relist)
		expect("when it is old", 3)
	})
}

// While the list of live lanes is valid, a feeder with live lanes gets the lanes that wake-ups name, at the price of a probe of
// these lanes: the list may be that of 10,000 busy companies.
func TestFeeder_NamedLanesWhileTheListIsValid(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		wakes := &heard{}
		outbox := &listing{found: dispatch.WaitingLanes{BreakerClosed: true, Lanes: []dispatch.WaitingLane{waiting(1, "a", 0), waiting(5, "a", 0), waiting(9, "b", 0)}}}
		live := &liveLanes{queue: "a", lanes: listed(t, outbox, wakes, 0)}
		want := func(when string, looks int, probed, wanted []int64) {
			t.Helper()
			if err := live.refresh(t.Context()); err != nil || outbox.looks != looks || !cmp.Equal(probed, outbox.probed) || !cmp.Equal(wanted, ids(live.all)) {
				t.Errorf("%s: %d looks, probed %v, live %v, %v", when, outbox.looks, outbox.probed, ids(live.all), err)
			}
		}
		name := func(lanes ...int64) {
			<-time.After(time.Millisecond)
			wakes.named = append(wakes.named, lanes...)
			live.lanes.invalidate()
			<-time.After(time.Millisecond)
		}
		want("at first", 1, nil, []int64{1, 5})
		valid := time.Now().Add(10 * time.Second)
		live.until, live.lanes.until = valid, valid
		<-time.After(maxApart)
		want("without a wake-up", 1, nil, []int64{1, 5})

		outbox.found.Lanes = append(outbox.found.Lanes, waiting(3, "a", 0), waiting(4, "b", 0), waiting(7, "a", 60))
		name(3, 4, 7)
		want("when others were named", 2, []int64{3, 4, 7}, []int64{1, 3, 5})
		outbox.found.Lanes = append(outbox.found.Lanes, waiting(8, "a", 0))
		name(8, 3)
		want("soon after", 2, []int64{3, 4, 7}, []int64{1, 3, 5})
		<-time.After(maxApart)
		want("later", 3, []int64{3, 8}, []int64{1, 3, 5, 8})
		if other, breakerOpen, err := live.lanes.added(t.Context(), "b"); err != nil || breakerOpen || !cmp.Equal([]int64{4, 9}, ids(other)) {
			t.Errorf("another feeder gets %v, breaker open %t, %v", ids(other), breakerOpen, err)
		}

		<-time.After(maxApart)
		wakes.all = true
		name()
		_ = requested(live.lanes)
		want("when no lane was named", 3, []int64{3, 8}, []int64{1, 3, 5, 8})
		if !requested(live.lanes) {
			t.Error("a wake-up that named no lane was lost")
		}
		<-time.After(time.Until(valid) + time.Millisecond)
		want("when the list is old", 4, []int64{1, 3, 4, 5, 8, 9}, []int64{1, 3, 5, 8})

		live.queue, live.lanes.breakerClosed = email.QueueNormal, true
		live.all, live.until, live.lanes.until = []liveLane{{id: 1}}, valid.Add(time.Minute), valid.Add(time.Minute)
		<-time.After(maxApart)
		name(1)
		outbox.found.BreakerClosed = false
		if err := live.refresh(t.Context()); err != nil || len(live.all) != 0 {
			t.Errorf("after the circuit breaker has opened: live %v, %v", ids(live.all), err)
		}
		outbox.found.BreakerClosed = true

		live.all, live.lanes.breakerClosed = []liveLane{{id: 1}}, true
		<-time.After(maxApart)
		name(1)
		outbox.err = errors.New("connection refused")
		if err := live.refresh(t.Context()); err == nil {
			t.Error("no error")
		}
		outbox.err = nil
		<-time.After(maxApart)
		live.lanes.invalidate()
		<-time.After(time.Millisecond)
		if err := live.refresh(t.Context()); err != nil || !slices.Equal(outbox.probed, []int64{1}) {
			t.Errorf("after a failed probe: %d are probed, %v", outbox.probed, err)
		}
	})
}

// A poll probes the lanes that were named and those that are due, and no others.
func TestLanes_ProbesDueLanes(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		wakes := &heard{}
		outbox := &listing{found: dispatch.WaitingLanes{BreakerClosed: true, Lanes: []dispatch.WaitingLane{waiting(1, "a", 10), waiting(2, "a", 20), waiting(3, "a", 1000)}}}
		l := listed(t, outbox, wakes, 0)
		want := func(when string, probed, live []int64) {
			t.Helper()
			outbox.probed = nil
			got, _, err := l.live(t.Context(), "a")
			if err != nil || !cmp.Equal(probed, outbox.probed) || !cmp.Equal(live, ids(got)) {
				t.Errorf("%s: probed %v, live %v, %v", when, outbox.probed, ids(got), err)
			}
		}
		want("at first", nil, nil)
		<-time.After(9 * time.Second)
		want("before any is due", nil, nil)
		<-time.After(2 * time.Second)
		outbox.found.Lanes[0].Wait = -1
		want("when one is due", []int64{1}, []int64{1})
		wakes.named = []int64{3, 7}
		outbox.found.Lanes[2].Wait = 0
		<-time.After(relist)
		want("when others were named", []int64{3, 7}, []int64{1, 3})
		l.schedule.took("a", []laneShare{{liveLane{id: 1}, 5}, {liveLane{id: 3}, 5}}, map[int64]int{1: 5, 3: 2})
		outbox.found.Lanes[2].Wait = 3600
		<-time.After(relist)
		want("when one gave less", []int64{3}, []int64{1})
		<-time.After(recheck)
		outbox.found.Lanes = outbox.found.Lanes[1:]
		want("when one was paused", []int64{1, 3}, nil)
		for what, change := range map[string]func(){
			"any may be new":      func() { wakes.all = true },
			"wake-ups are lost":   func() { wakes.deaf = true },
			"nothing has changed": func() {},
		} {
			_ = requested(l)
			change()
			<-time.After(relist)
			_, _, err := l.live(t.Context(), "a")
			if got := requested(l); err != nil || got != (what != "nothing has changed") {
				t.Errorf("when %s, a listing is requested: %t, %v", what, got, err)
			}
			wakes.deaf = false
		}
	})
}

// While the circuit breaker is open no email is taken; the lanes are live as soon as it closes.
func TestLanes_CircuitBreaker(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		outbox := &listing{found: dispatch.WaitingLanes{Lanes: []dispatch.WaitingLane{waiting(1, email.QueueNormal, 0), waiting(2, email.QueueMailings, 0)}}}
		l := listed(t, outbox, &heard{}, 0)
		for _, open := range []bool{false, true, false} {
			outbox.found.BreakerClosed = open
			emails, _, err := l.live(t.Context(), email.QueueNormal)
			jobs, _, _ := l.live(t.Context(), email.QueueMailings)
			if err != nil || len(jobs) != 1 || (len(emails) == 1) != open {
				t.Errorf("open %t: %v, %v, %v", open, emails, jobs, err)
			}
			<-time.After(relist)
		}
	})
}

// The full listing finds what no poll has found, and keeps the results of later polls.
func TestLanes_FullListing(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		outbox := &listing{found: dispatch.WaitingLanes{BreakerClosed: true}}
		l := listed(t, outbox, &heard{}, 10*time.Second)
		live := func() []int64 {
			got, _, err := l.live(t.Context(), "a")
			if err != nil {
				t.Error(err)
			}
			return ids(got)
		}
		_ = live()
		outbox.found.Lanes = []dispatch.WaitingLane{waiting(5, "a", 0)}
		_, _ = l.list(t.Context())
		if got := live(); len(got) > 0 || outbox.listed != 1 {
			t.Errorf("listed %d times within the interval: %v", outbox.listed, got)
		}
		<-time.After(10 * time.Second)
		_, _ = l.list(t.Context())
		if got := live(); !slices.Equal(got, []int64{5}) || outbox.listed != 2 {
			t.Errorf("listed %d times: %v", outbox.listed, got)
		}
		start := time.Now()
		<-time.After(time.Second)
		_ = live() // polls again
		l.schedule.replace(nil, start)
		if got := live(); !slices.Equal(got, []int64{5}) {
			t.Errorf("an old listing left %v", got)
		}
		l.schedule.replace(nil, time.Now().Add(time.Second))
		if got := live(); len(got) > 0 {
			t.Errorf("a new listing left %v", got)
		}
	})
}

// The fewer emails there are, the sooner a poll follows the last one: a single email does not wait.
func TestLanes_Spacing(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		taken int64
		want  time.Duration
	}{
		"none":      {0, 5 * time.Millisecond},
		"a few":     {3, 8 * time.Millisecond},
		"very many": {1000, 50 * time.Millisecond},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				l := newLanes(&listing{}, nil, 0)
				look := func() time.Duration {
					start := time.Now()
					l.invalidate()
					if _, _, err := l.live(t.Context(), "a"); err != nil {
						t.Fatal(err)
					}
					return time.Since(start)
				}
				if waited := look(); waited != 0 {
					t.Errorf("the first email waited %s", waited)
				}
				l.taken.Add(tt.taken)
				if waited := look(); waited != tt.want {
					t.Errorf("waited %s, want %s", waited, tt.want)
				}
				<-time.After(tt.want) // the test bubble's clock
				if waited := look(); waited != 0 {
					t.Errorf("a single email waited %s", waited)
				}
			})
		})
	}
}

// A failed poll keeps the lanes that were named for the next one, and makes no listing.
func TestLanes_Failure(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		wakes, outbox := &heard{}, &listing{found: dispatch.WaitingLanes{BreakerClosed: true}}
		l := listed(t, outbox, wakes, 0)
		_, _, _ = l.live(t.Context(), "a")
		_ = requested(l)
		outbox.err = errors.New("connection refused")
		for looks := 2; looks <= 3; looks++ {
			wakes.named = []int64{int64(looks)}
			<-time.After(relist)
			if _, _, err := l.live(t.Context(), "a"); !errors.Is(err, outbox.err) || outbox.looks != looks || requested(l) {
				t.Errorf("%d polls: %v", outbox.looks, err)
			}
		}
		outbox.err, outbox.found.Lanes = nil, []dispatch.WaitingLane{waiting(2, "a", 0), waiting(3, "a", 0)}
		if got, _, err := l.live(t.Context(), "a"); err != nil || len(got) != 2 {
			t.Errorf("after failures: %v, %v", got, err)
		}
		outbox.err = errors.New("connection refused")
		wakes.named = make([]int64, maxKept+1)
		<-time.After(relist)
		if _, _, err := l.live(t.Context(), "a"); err == nil || !requested(l) {
			t.Errorf("too many names: %v", err)
		}
		<-time.After(maxAge)
		if _, _, err := l.live(t.Context(), "a"); err == nil || !requested(l) {
			t.Errorf("after a minute of failures: %v", err)
		}
		l.lock <- struct{}{} // another feeder's poll takes long
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if _, _, err := l.live(ctx, "a"); !errors.Is(err, context.Canceled) {
			t.Errorf("a stop while waiting: %v", err)
		}
	})
}
