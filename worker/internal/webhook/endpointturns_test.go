package webhook_test

import (
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"email-gateway/shared/waittest"
)

// Endpoints that always have more to do make room for others when a process serves as many as it may.
func TestService_EndpointsTakeTurns(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	one, two := w.Company(t), w.Company(t)
	busy := w.endpoint(t, one, "email.received")
	var served atomic.Bool
	var attempts atomic.Int32
	busy.setAnswer(func(message) int {
		if attempts.Add(1)%50 == 0 && !served.Load() { // it never runs out of events
			w.emit(t, one, 100, 1)
		}
		return http.StatusOK
	})
	w.emit(t, one, 200, 1)
	s := w.service(nil)
	s.SetTurns(1, 0)
	if err := s.Start(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Stop(t.Context()) })
	waittest.Until(t, "the first events", func() bool { return len(busy.messages()) > 0 })
	quiet := w.endpoint(t, two, "email.received")
	w.emit(t, two, 1, 1)
	defer served.Store(true)
	waittest.Until(t, "the other company's event", func() bool { return len(quiet.messages()) == 1 })
}

// A slow endpoint, whose page of events would take minutes, makes room for others when its turn is over.
func TestService_SlowEndpointEndsItsTurn(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	one, two := w.Company(t), w.Company(t)
	slow := w.endpoint(t, one, "email.received")
	released := make(chan struct{})
	var attempts atomic.Int32
	slow.setAnswer(func(message) int {
		attempts.Add(1)
		<-released
		return http.StatusOK
	})
	w.emit(t, one, 60, 1)
	s := w.service(nil)
	s.SetTurns(1, 0)
	if err := s.Start(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Stop(t.Context()) })
	waittest.Until(t, "the first attempt", func() bool { return attempts.Load() == 1 })
	quiet := w.endpoint(t, two, "email.received")
	w.emit(t, two, 1, 1)
	released <- struct{}{}
	waittest.Until(t, "the other company's event", func() bool { return len(quiet.messages()) == 1 })
	if n := attempts.Load(); n > 2 { // the second one begins the next turn
		t.Errorf("the slow endpoint got %d requests meanwhile", n)
	}
	close(released)
	waittest.Until(t, "all events of the slow endpoint", func() bool { return len(slow.messages()) == 60 })
}

// The end of a turn, before all events of a page were attempted, sends no later event twice.
func TestService_TurnEndsWithinPage(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	company := w.Company(t)
	r := w.endpoint(t, company)
	ids := w.emit(t, company, 2, 2)
	arrived, released := make(chan struct{}), make(chan struct{})
	var once sync.Once
	r.setAnswer(func(m message) int {
		if m.Email == ids[0].String() && m.Seq == 1 {
			once.Do(func() { close(arrived) })
			<-released
		}
		return http.StatusOK
	})
	s := w.service(nil)
	const turn = 2 * time.Second
	s.SetTurns(256, turn)
	if err := s.Start(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Stop(t.Context()) })
	<-arrived
	start := time.Now()
	waittest.Until(t, "the other email's events, and the end of the turn", func() bool { return len(r.messages()) == 2 && time.Since(start) > turn })
	close(released)
	waittest.Until(t, "all events", func() bool { return len(r.messages()) >= 4 })
	head, err := w.Sending.Head(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	waittest.Until(t, "the result", func() bool { e := w.find(t, r); return e.Open == 0 && e.Position == head })
	r.check(t, w, 4)
	if n := len(r.attempts()); n != 4 {
		t.Errorf("%d requests for 4 events", n)
	}
}

// A request that is in flight when the service is stopped is not repeated.
func TestService_StopWaitsForRequests(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	company := w.Company(t)
	r := w.endpoint(t, company)
	w.emit(t, company, 1, 3)
	arrived := make(chan struct{})
	var once sync.Once
	r.setAnswer(func(message) int {
		once.Do(func() {
			close(arrived)
			<-time.After(time.Second) // the response comes after the stop
		})
		return http.StatusOK
	})
	first := w.start(t, nil)
	<-arrived
	if err := first.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	if n := len(r.attempts()); n != 1 {
		t.Errorf("%d requests before and during the stop, want 1", n)
	}
	w.start(t, nil)
	waittest.Until(t, "the other events", func() bool { return len(r.messages()) >= 3 })
	r.check(t, w, 3)
	if n := len(r.attempts()); n != 3 {
		t.Errorf("%d requests for 3 events", n)
	}
}
