package dispatcher

import (
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"email-gateway/shared/store/dispatch"
)

// A failed listing is reported, since no poll may be failing at the time.
func TestLanes_FailedListing(t *testing.T) {
	t.Parallel()
	outbox := &listing{err: errors.New("connection refused")}
	if _, err := newLanes(outbox, nil, 0).list(t.Context()); !errors.Is(err, outbox.err) {
		t.Errorf("the error is %v", err)
	}
}

// While a listing runs, polls find named lanes, those that are due and those of new rows. This holds for the first listing too.
func TestLanes_PollsDuringListing(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		wakes := &heard{all: true}
		outbox := &listing{found: dispatch.WaitingLanes{BreakerClosed: true, Lanes: []dispatch.WaitingLane{waiting(1, "a", 0), waiting(2, "a", 0), waiting(3, "a", 0)}}}
		l := newLanes(outbox, wakes, 0)
		want := func(when string, live ...int64) {
			t.Helper()
			if got, _, err := l.live(t.Context(), "a"); err != nil || !slices.Equal(ids(got), live) {
				t.Errorf("%s: live %v, want %v, %v", when, ids(got), live, err)
			}
		}
		end, begun := make(chan struct{}), make(chan struct{})
		outbox.during = func() { close(begun); <-end }
		done := make(chan error)
		go func() {
			_, err := l.list(t.Context())
			done <- err
		}()
		<-begun
		want("at first")
		wakes.named = []int64{2}
		<-time.After(relist)
		want("when one is named", 2)
		outbox.made = []int64{1}
		<-time.After(newAtLeast)
		want("when one has a new row", 1, 2)
		close(end)
		if err := <-done; err != nil {
			t.Error(err)
		}
		want("after the listing", 1, 2, 3)
		select {
		case <-l.becameLive:
		default:
			t.Error("no feeder is woken after the listing")
		}
	})
}

// A listing keeps the circuit breaker's state of a poll that began later.
func TestLanes_CircuitBreakerDuringListing(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		outbox := &listing{found: dispatch.WaitingLanes{BreakerClosed: true}}
		l := newLanes(outbox, &heard{}, 0)
		outbox.during = func() {
			outbox.found.BreakerClosed = false
			<-time.After(time.Second)
			_, _, _ = l.live(t.Context(), "a")
		}
		if _, err := l.list(t.Context()); err != nil || l.breakerClosed {
			t.Errorf("closed is the listing's value, %v", err)
		}
	})
}

// A listing that was requested begins at once, or after a pause in proportion to the duration of the last one, failed or not.
func TestLanes_ListingsOnRequest(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		outbox := &listing{found: dispatch.WaitingLanes{BreakerClosed: true}}
		l := listed(t, outbox, &heard{}, 0)
		list := func(when string, took time.Duration, failure error, waited time.Duration, listed int) {
			t.Helper()
			<-time.After(time.Millisecond)
			outbox.during, outbox.err, outbox.listed = func() { <-time.After(took) }, failure, 0
			start := time.Now()
			if _, err := l.list(t.Context()); !errors.Is(err, failure) || time.Since(start) != waited || outbox.listed != listed {
				t.Errorf("%s: listed %d times, waited %s, %v", when, outbox.listed, time.Since(start), err)
			}
		}
		failure := errors.New("canceling statement due to statement timeout")
		list("without a request", 0, nil, 0, 0)
		l.request()
		list("on request", time.Second, nil, time.Second, 1)
		list("after it", time.Second, nil, listPause*time.Second-time.Millisecond, 0)
		l.request()
		list("on request, with an error", 30*time.Second, failure, 30*time.Second, 1)
		list("after the error", time.Second, nil, listPause*30*time.Second+time.Second-time.Millisecond, 1)
	})
}
