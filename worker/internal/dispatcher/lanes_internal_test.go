package dispatcher

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
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

func (l *listing) LiveLanes(context.Context) (map[string][]int64, error) {
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

// A list follows the one before sooner the fewer emails there are: one by itself does not
// wait, and many are worth a round.
func TestLanes_Spacing(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		taken int
		want  time.Duration
	}{
		"none":      {0, 5 * time.Millisecond},
		"a few":     {3, 8 * time.Millisecond},
		"very many": {1000, 50 * time.Millisecond},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				l := newLanes(&listing{})
				list := func() time.Duration {
					begun := time.Now()
					l.outdate()
					if _, _, err := l.of(t.Context(), "a"); err != nil {
						t.Fatal(err)
					}
					return time.Since(begun)
				}
				if waited := list(); waited != 0 {
					t.Errorf("the first email waited %s", waited)
				}
				l.took(tt.taken)
				if waited := list(); waited != tt.want {
					t.Errorf("waited %s, want %s", waited, tt.want)
				}
				<-time.After(tt.want) // of the bubble's own clock
				if waited := list(); waited != 0 {
					t.Errorf("an email that came by itself waited %s", waited)
				}
			})
		})
	}
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
