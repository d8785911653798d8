package dispatcher

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// listing answers LiveLanes, and counts how often it was asked.
type listing struct {
	Outbox
	live  map[string][]int64
	err   error
	asked int
}

func (l *listing) LiveLanes(context.Context, time.Duration) (map[string][]int64, error) {
	l.asked++
	return l.live, l.err
}

func TestLanes_OneListForAllFeeders(t *testing.T) {
	t.Parallel()
	outbox := &listing{live: map[string][]int64{"a": {1, 2}, "b": {3}}}
	l := newLanes(outbox)
	expect := func(when string, asked int) {
		t.Helper()
		for queue, want := range map[string][]int64{"a": {1, 2}, "b": {3}, "c": nil} {
			got, until, err := l.of(t.Context(), queue)
			if err != nil || !until.Equal(l.until) || !cmp.Equal(want, got) {
				t.Errorf("%s, %s: %v until %v, %v", when, queue, got, until, err)
			}
			if len(got) > 0 {
				got[0] = 99 // a feeder does with its list what it likes
			}
			l.until = time.Now().Add(time.Hour) // however slow the machine is
		}
		if outbox.asked != asked {
			t.Errorf("%s: listed %d times, want %d", when, outbox.asked, asked)
		}
	}
	expect("at first", 1)
	expect("soon after", 1)
	l.outdate()
	expect("after a wake-up", 2)
	l.until = time.Now()
	expect("when it is old", 3)
}

func TestLanes_Failure(t *testing.T) {
	t.Parallel()
	outbox := &listing{err: errors.New("away")}
	l := newLanes(outbox)
	for asked := 1; asked <= 2; asked++ {
		if _, _, err := l.of(t.Context(), "a"); !errors.Is(err, outbox.err) || outbox.asked != asked {
			t.Errorf("asked %d times: %v", outbox.asked, err)
		}
	}
	l.turn <- struct{}{} // another feeder's list takes long
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, _, err := l.of(ctx, "a"); !errors.Is(err, context.Canceled) {
		t.Errorf("a stop while waiting: %v", err)
	}
}
