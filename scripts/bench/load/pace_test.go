package load

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"
)

// The loop is open: all calls start although the first one returns only after the last has started.
func TestPace_OpenLoop(t *testing.T) {
	t.Parallel()
	const n = 20
	all := make(chan struct{})
	var offered atomic.Int64
	err := Pace{N: n, Every: time.Millisecond}.Run(t.Context(), func(int) error {
		if offered.Add(1) == n {
			close(all)
		}
		select {
		case <-all:
			return nil
		case <-t.Context().Done():
			return t.Context().Err()
		}
	})
	if err != nil || offered.Load() != n {
		t.Errorf("%d started, %v", offered.Load(), err)
	}
}

// Every interval has exactly one call, with jitter too.
func TestPace_Intervals(t *testing.T) {
	t.Parallel()
	for _, jitter := range []bool{false, true} {
		const n, every = 10, 20 * time.Millisecond
		start := time.Now()
		at := make([]time.Duration, n)
		if err := (Pace{N: n, Every: every, Jitter: jitter}).Run(t.Context(), func(i int) error {
			at[i] = time.Since(start)
			return nil
		}); err != nil {
			t.Fatal(err)
		}
		for i, offset := range at {
			if offset < time.Duration(i)*every {
				t.Errorf("jitter %v: call %d started after %s, before its interval", jitter, i, offset)
			}
		}
	}
}

func TestPace_Errors(t *testing.T) {
	t.Parallel()
	cause := errors.New("refused")
	if err := (Pace{N: 3, Every: time.Millisecond}).Run(t.Context(), func(i int) error {
		if i == 1 {
			return cause
		}
		return nil
	}); !errors.Is(err, cause) {
		t.Errorf("got %v", err)
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if err := (Pace{N: 3, Every: time.Hour}).Run(ended, func(int) error { return nil }); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v after the end", err)
	}
}
