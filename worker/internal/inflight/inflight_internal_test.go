package inflight

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// pacer admits everything unless let is set.
type pacer struct {
	let      chan struct{} // nil = everything
	mu       sync.Mutex
	rate     float64
	returned int
}

func (p *pacer) OwnRate() float64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.rate
}

func (p *pacer) setRate(rate float64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.rate = rate
}

func (p *pacer) Return(n int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.returned += n
}

func (p *pacer) Wait(ctx context.Context, _ int) error {
	if p.let == nil {
		return nil
	}
	select {
	case <-p.let:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// pending says that a task is ready.
func pending() bool { return true }

func newLimiter(p *pacer, fixed int) *Limiter { return newSuspended(p, &suspension{}, fixed) }

func newSuspended(p *pacer, s *suspension, fixed int) *Limiter {
	return New(Params{
		Log: slog.New(slog.DiscardHandler), Pacer: p, Suspension: s, Fixed: fixed, Min: 10, Max: 512,
		InFlight: func(int) {}, Registry: prometheus.NewRegistry(),
	})
}

// With a fixed limit, an email is admitted when another one has ended.
func TestLimiter_Fixed(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := newLimiter(&pacer{rate: 1000}, 2)
		for range 2 {
			at, err := l.Admit(t.Context(), 0, pending)
			if err != nil || at.IsZero() {
				t.Fatal(at, err)
			}
			l.Used(at)
			if start := l.Begin(); !start.Equal(at) {
				t.Errorf("admitted at %s, Begin returned %s", at, start)
			}
		}
		third := false
		go func() {
			if _, err := l.Admit(t.Context(), 0, pending); err != nil {
				t.Error(err)
			}
			third = true
		}()
		synctest.Wait()
		if third {
			t.Fatal("three emails in flight of two")
		}
		l.End()
		synctest.Wait()
		if !third {
			t.Error("a free slot is not used")
		}
	})
}

// An unused admission is returned, and a cancelled wait takes nothing.
func TestLimiter_ReturnsUnused(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := &pacer{rate: 1000, let: make(chan struct{}, 1)}
		l := newLimiter(p, 1)
		p.let <- struct{}{}
		if _, err := l.Admit(t.Context(), 0, pending); err != nil {
			t.Fatal(err)
		}
		l.Unused()
		if p.returned != 1 {
			t.Errorf("%d tokens returned, want 1", p.returned)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := l.Admit(ctx, 0, pending); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("err = %v without a token", err)
		}
		p.let <- struct{}{}
		if _, err := l.Admit(t.Context(), 0, pending); err != nil { // the slot is free
			t.Fatal(err)
		}
		ctx, cancel = context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := l.Admit(ctx, 0, pending); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("err = %v without a slot", err)
		}
		if _, taken := l.slots.current(); taken != 1 {
			t.Errorf("%d slots taken, want 1", taken)
		}
	})
}

// An admission for an empty queue takes no token.
func TestLimiter_NothingPending(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p, s := &pacer{rate: 1000, let: make(chan struct{})}, &suspension{}
		l := newSuspended(p, s, 1)
		at, err := l.Admit(t.Context(), 0, func() bool { return false })
		if err != nil || !at.IsZero() {
			t.Errorf("admitted at %s, %v", at, err)
		}
		if _, taken := l.slots.current(); taken != 0 || p.returned != 0 || s.unused.Load() != 0 {
			t.Errorf("%d slots taken, %d tokens returned, %d places in a suspension", taken, p.returned, s.unused.Load())
		}
	})
}

// A Server joins when those before it are busy enough, and only if the limit exceeds their
// concurrency.
func TestLimiter_ServersJoin(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := newLimiter(&pacer{rate: 1000}, 20)
		joined := false
		go func() {
			if _, err := l.Admit(t.Context(), 16, pending); err != nil {
				t.Error(err)
			}
			joined = true
		}()
		for n := range 4 {
			synctest.Wait()
			if joined {
				t.Fatalf("joined with %d in flight", n)
			}
			if _, err := l.Admit(t.Context(), 0, pending); err != nil {
				t.Fatal(err)
			}
		}
		synctest.Wait()
		if !joined {
			t.Error("not joined with four in flight of sixteen")
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		if _, err := l.Admit(ctx, 20, pending); err == nil {
			t.Error("joined although the others hold the limit")
		}
	})
}

// A Server joins while the queues return task after task, however few are in flight: the one before
// it takes them more slowly than they are sent.
func TestLimiter_ServersJoinWhileTasksWait(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := newLimiter(&pacer{rate: 1000}, 100)
		admit := func(others int, limit time.Duration) error {
			ctx, cancel := context.WithTimeout(t.Context(), limit)
			defer cancel()
			_, err := l.Admit(ctx, others, pending)
			return err
		}
		for n := range inRow {
			if err := admit(64, time.Second); err == nil {
				t.Fatalf("joined after %d tasks", n)
			}
			if err := admit(0, time.Second); err != nil {
				t.Fatal(err)
			}
			l.Used(time.Now())
			l.Begin()
			l.End()
		}
		for n := range dry {
			if err := admit(64, time.Second); err != nil {
				t.Fatalf("not joined after %d empty answers: %v", n, err)
			}
			l.Unused()
		}
		if err := admit(64, time.Second); err == nil {
			t.Error("joined although the queues are empty")
		}
	})
}

// The slot of a task that never reaches its handler is freed after a while.
func TestLimiter_FreesLostTasks(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := newLimiter(&pacer{rate: 1000}, 1)
		at, err := l.Admit(t.Context(), 0, pending)
		if err != nil {
			t.Fatal(err)
		}
		l.Used(at)
		if err := l.Start(t.Context(), func(err error) { t.Error(err) }); err != nil {
			t.Fatal(err)
		}
		if _, err := l.Admit(t.Context(), 0, pending); err != nil {
			t.Fatal(err)
		}
		if waited := time.Since(at); waited < beginTime || waited > beginTime+time.Second {
			t.Errorf("free after %s", waited)
		}
		if late := l.Begin(); !late.IsZero() {
			t.Errorf("a lost task was admitted at %s", late)
		}
		if _, taken := l.slots.current(); taken != 2 {
			t.Errorf("%d slots taken, want 2", taken)
		}
		if err := l.Stop(t.Context()); err != nil {
			t.Fatal(err)
		}
	})
}
