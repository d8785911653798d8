package service_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"email-gateway/shared/service"
)

// startLoop starts a loop and stops it with the test. It must run inside a synctest bubble, where
// an hour takes no time and Wait returns when all goroutines are blocked.
func startLoop(t *testing.T, p service.LoopParams) {
	t.Helper()
	if p.Log == nil {
		p.Log = discard()
	}
	loop := service.NewLoop(p)
	if err := loop.Start(t.Context(), nil); err != nil {
		t.Fatalf("start loop: %v", err)
	}
	t.Cleanup(func() {
		if err := loop.Stop(context.Background()); err != nil {
			t.Errorf("stop loop: %v", err)
		}
	})
}

func TestLoop_AtOnceThenEveryInterval(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var rounds atomic.Int32
		startLoop(t, service.LoopParams{Interval: time.Minute, RunOnce: func(context.Context) (bool, error) {
			rounds.Add(1)
			return false, nil
		}})
		for minute, want := range []int32{1, 2, 3} {
			synctest.Wait()
			if got := rounds.Load(); got != want {
				t.Errorf("after %d min: %d rounds, want %d", minute, got, want)
			}
			<-time.After(time.Minute)
		}
	})
}

func TestLoop_ContinuesWhileThereIsMore(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		rounds, start := 0, time.Now()
		startLoop(t, service.LoopParams{Interval: time.Hour, RunOnce: func(context.Context) (bool, error) {
			rounds++
			return rounds < 100, nil
		}})
		synctest.Wait()
		if rounds != 100 || time.Since(start) != 0 {
			t.Errorf("%d rounds in %s, want 100 at once", rounds, time.Since(start))
		}
	})
}

func TestLoop_WakeStartsTheNextRound(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		wake := make(chan struct{}, 1)
		rounds := 0
		startLoop(t, service.LoopParams{Interval: time.Hour, Wake: wake, RunOnce: func(context.Context) (bool, error) {
			rounds++
			return false, nil
		}})
		for want := 2; want <= 4; want++ {
			synctest.Wait()
			wake <- struct{}{}
			synctest.Wait()
			if rounds != want {
				t.Errorf("%d rounds, want %d", rounds, want)
			}
		}
	})
}

// A wake-up during a round is not lost: its cause may be newer than what the round has read.
func TestLoop_WakeDuringARound(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		wake := make(chan struct{}, 1)
		rounds := 0
		startLoop(t, service.LoopParams{Interval: time.Hour, Wake: wake, RunOnce: func(context.Context) (bool, error) {
			if rounds++; rounds == 1 {
				wake <- struct{}{}
			}
			return false, nil
		}})
		synctest.Wait()
		if rounds != 2 {
			t.Errorf("%d rounds, want 2", rounds)
		}
	})
}

func TestLoop_ErrorIsLoggedAndDelaysNextRound(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		wake := make(chan struct{}, 1)
		var times []time.Duration
		start := time.Now()
		startLoop(t, service.LoopParams{
			Log: slog.New(slog.NewTextHandler(&log, nil)), Interval: time.Hour, ErrorDelay: 5 * time.Second, Wake: wake,
			RunOnce: func(context.Context) (bool, error) {
				times = append(times, time.Since(start))
				if len(times) == 1 {
					wake <- struct{}{}
				}
				if len(times) <= 2 {
					return true, errors.New("connection refused") // there is more, but not now
				}
				return false, nil
			},
		})
		<-time.After(time.Minute)
		synctest.Wait()
		// The wake-up of round 1 is kept until the dependency has recovered.
		want := []time.Duration{0, 5 * time.Second, 10 * time.Second, 10 * time.Second}
		if len(times) != len(want) {
			t.Fatalf("rounds at %v, want %v", times, want)
		}
		for i := range want {
			if times[i] != want[i] {
				t.Errorf("round %d at %s, want %s: a wake must not shorten the pause after an error", i+1, times[i], want[i])
			}
		}
		if n := strings.Count(log.String(), `error="connection refused"`); n != 2 {
			t.Errorf("logged %d times, want 2:\n%s", n, log.String())
		}
	})
}

func TestLoop_WithoutErrorDelayASecond(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var rounds atomic.Int32
		startLoop(t, service.LoopParams{Interval: time.Hour, RunOnce: func(context.Context) (bool, error) {
			rounds.Add(1)
			return false, errors.New("connection refused")
		}})
		<-time.After(9500 * time.Millisecond)
		if got := rounds.Load(); got != 10 {
			t.Errorf("%d rounds in 9.5 s, want 10", got)
		}
	})
}

func TestLoop_PanicEndsOneRound(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		rounds := 0
		startLoop(t, service.LoopParams{
			Log: slog.New(slog.NewTextHandler(&log, nil)), Interval: time.Hour,
			RunOnce: func(context.Context) (bool, error) {
				if rounds++; rounds == 1 {
					panic("no such lane for ana@example.com, 529.982.247-25")
				}
				return false, nil
			},
		})
		<-time.After(time.Minute)
		synctest.Wait()
		if rounds != 2 {
			t.Errorf("%d rounds, want a second one", rounds)
		}
		if !strings.Contains(log.String(), "panic: no such lane for a***@e***.com, ***") || !strings.Contains(log.String(), "loop_test.go") {
			t.Errorf("the log must contain the panic and its stack:\n%s", log.String())
		}
	})
}

func TestLoop_StopCancelsTheRoundAndWaits(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		cleaned := false
		loop := service.NewLoop(service.LoopParams{
			Log: slog.New(slog.NewTextHandler(&log, nil)), Interval: time.Hour,
			RunOnce: func(ctx context.Context) (bool, error) {
				<-ctx.Done()
				<-time.After(3 * time.Second) // its clean-up
				cleaned = true
				return true, ctx.Err()
			},
		})
		ctx, end := context.WithCancel(t.Context())
		if err := loop.Start(ctx, nil); err != nil {
			t.Fatal(err)
		}
		end() // the program's context: only Stop ends a loop
		<-time.After(time.Minute)
		if err := loop.Stop(t.Context()); err != nil || !cleaned {
			t.Errorf("Stop returned %v, round ended: %v", err, cleaned)
		}
		if log.Len() > 0 {
			t.Errorf("a cancelled round was logged as an error:\n%s", log.String())
		}
	})
}

func TestLoop_StopGivesUpWithItsContext(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		loop := service.NewLoop(service.LoopParams{Log: discard(), Interval: time.Hour, RunOnce: func(context.Context) (bool, error) {
			<-release
			return false, nil
		}})
		if err := loop.Start(t.Context(), nil); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
		defer cancel()
		if err := loop.Stop(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("got %v, want the deadline", err)
		}
		close(release)
	})
}

// A database outage of minutes logs a few lines, and one at its end.
func TestLoop_LogsFailuresAtIntervals(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		rounds := 0
		startLoop(t, service.LoopParams{
			Log: slog.New(slog.NewTextHandler(&log, nil)), Interval: time.Hour,
			RunOnce: func(context.Context) (bool, error) {
				if rounds++; rounds <= 100 {
					return false, errors.New("database away")
				}
				return false, nil
			},
		})
		<-time.After(10 * time.Minute)
		synctest.Wait()
		text := log.String()
		if n := strings.Count(text, `msg="round failed" error="database away"`); n != 4 { // at 0, 30, 60 and 90 s
			t.Errorf("100 failures made %d lines, want 4:\n%s", n, text)
		}
		if !strings.Contains(text, `msg="rounds succeed again" interrupted=1m40s rounds=100 error="database away"`) {
			t.Errorf("the recovery is not logged:\n%s", text)
		}
	})
}
