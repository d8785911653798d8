package inflight

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// suspension is none unless let is set.
type suspension struct {
	let          chan struct{} // nil = none
	used, unused atomic.Int64
}

func (s *suspension) Used()   { s.used.Add(1) }
func (s *suspension) Unused() { s.unused.Add(1) }

func (s *suspension) Await(ctx context.Context) error { return (&pacer{let: s.let}).Wait(ctx, 1) }

// A suspension delays each email and takes none of the rate meanwhile.
func TestLimiter_Suspension(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p, s := &pacer{rate: 1000}, &suspension{let: make(chan struct{})}
		l := newSuspended(p, s, 64)
		waiting, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := l.Admit(waiting, 0, pending); err == nil {
			t.Error("admitted during the suspension")
		}
		if _, taken := l.slots.current(); taken != 0 || s.unused.Load() != 0 {
			t.Errorf("%d slots taken, %d unused", taken, s.unused.Load())
		}
		go func() { s.let <- struct{}{}; s.let <- struct{}{} }()
		at, err := l.Admit(t.Context(), 0, pending)
		if err != nil {
			t.Fatal(err)
		}
		l.Used(at)
		if _, err := l.Admit(t.Context(), 0, pending); err != nil {
			t.Fatal(err)
		}
		l.Unused()
		if s.used.Load() != 1 || s.unused.Load() != 1 {
			t.Errorf("%d used, %d unused", s.used.Load(), s.unused.Load())
		}
	})
}
