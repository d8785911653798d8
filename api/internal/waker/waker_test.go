package waker_test

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"email-gateway/api/internal/waker"
	"email-gateway/shared/store/lane"
)

func TestWaker(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		var at []time.Duration
		start := time.Now()
		w := waker.New(slog.New(slog.NewTextHandler(t.Output(), nil)), func(context.Context, []lane.Lanes) error {
			mu.Lock()
			defer mu.Unlock()
			at = append(at, time.Since(start))
			return nil
		})
		if err := w.Start(t.Context(), nil); err != nil {
			t.Fatal(err)
		}
		<-time.After(time.Second)
		for range 1000 {
			w.Wake()
		}
		<-time.After(time.Second)
		w.Wake()
		<-time.After(time.Second)
		if err := w.Stop(t.Context()); err != nil {
			t.Fatal(err)
		}
		w.Wake() // after the end: no block, no effect
		// One notification at the start, one at the first of a thousand wakes, perhaps one for wakes during that
		// notification, and one at the last.
		at = slices.Compact(at)
		if len(at) < 3 || len(at) > 4 || at[1] != time.Second || at[len(at)-1] != 2*time.Second {
			t.Errorf("notified at %v, want at 0s, 1s and 2s, and at most once more", at)
		}
		for i := 1; i < len(at); i++ {
			if at[i]-at[i-1] < 5*time.Millisecond {
				t.Errorf("two notifications within %v, want at least 5 ms between them", at[i]-at[i-1])
			}
		}
	})
}

// The pause grows with the number of wakes.
func TestWaker_Spacing(t *testing.T) {
	t.Parallel()
	for wakes, want := range map[int]time.Duration{1: 6 * time.Millisecond, 3: 8 * time.Millisecond, 1000: 25 * time.Millisecond} {
		synctest.Test(t, func(t *testing.T) {
			notified := make(chan time.Time, 2)
			w := waker.New(slog.New(slog.NewTextHandler(t.Output(), nil)), func(context.Context, []lane.Lanes) error {
				notified <- time.Now()
				return nil
			})
			for range wakes {
				w.Wake()
			}
			if err := w.Start(t.Context(), nil); err != nil {
				t.Fatal(err)
			}
			first := <-notified
			w.Wake()
			if second := <-notified; second.Sub(first) != want {
				t.Errorf("after %d wakes: notified again after %v, want %v", wakes, second.Sub(first), want)
			}
			if err := w.Stop(t.Context()); err != nil {
				t.Fatal(err)
			}
		})
	}
}

func TestWaker_SurvivesAnError(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		notified := 0
		w := waker.New(slog.New(slog.NewTextHandler(t.Output(), nil)), func(context.Context, []lane.Lanes) error {
			notified++
			return errors.New("no database")
		})
		if err := w.Start(t.Context(), nil); err != nil {
			t.Fatal(err)
		}
		<-time.After(2 * time.Second)
		w.Wake()
		<-time.After(2 * time.Second)
		if err := w.Stop(t.Context()); err != nil {
			t.Fatal(err)
		}
		if notified < 2 {
			t.Errorf("%d notifications, want at least 2", notified)
		}
	})
}
