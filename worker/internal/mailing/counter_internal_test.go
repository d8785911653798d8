package mailing

import (
	"context"
	"log/slog"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/prometheus/client_golang/prometheus"

	mailingstore "email-gateway/shared/store/mailing"
)

// oneMailing is a store with one mailing that has just been counted.
type oneMailing struct {
	id    uuid.UUID
	tally mailingstore.Tally
	count int
}

func (o *oneMailing) OpenMailings(context.Context) ([]mailingstore.OpenMailing, error) {
	now := time.Now()
	return []mailingstore.OpenMailing{{ID: o.id, CountedAt: &now}}, nil
}

func (o *oneMailing) CountMailing(context.Context, uuid.UUID) (mailingstore.Tally, error) {
	o.count++
	return o.tally, nil
}

func (o *oneMailing) FoldMailingFeedback(context.Context) (int, error) { return 0, nil }

// A mailing whose entries will all have ended before the next regular count is counted at that
// time, although it has just been counted.
func TestCounter_AboutToEnd(t *testing.T) {
	t.Parallel()
	mailings := &oneMailing{id: uuid.New(), tally: mailingstore.Tally{Queued: 10}}
	all := func(mailingstore.OpenMailing) bool { return true }
	c := newCountLoop(CounterParams{Log: slog.New(slog.DiscardHandler), Store: mailings}, prometheus.NewCounter(prometheus.CounterOpts{}), all)
	c.last[mailings.id] = counted{tally: mailingstore.Tally{Queued: 1000}, at: time.Now().Add(-countInterval)}
	c.note(mailings.id, mailings.tally, 0)
	c.sleep(mailings.id, time.Now())
	c.scheduleCompletionCheck()
	select {
	case <-c.wake:
	case <-time.After(time.Minute):
		t.Fatal("the loop is not woken")
	}
	mailings.tally = mailingstore.Tally{Sent: 1000, Completed: true}
	if _, err := c.runOnce(t.Context()); err != nil || mailings.count != 1 {
		t.Fatalf("it was counted %d times, %v", mailings.count, err)
	}
	if ends := c.last[mailings.id].ends; !ends.IsZero() {
		t.Errorf("its end is still expected at %s", ends)
	}
}

func TestCounter_ExpectedEnd(t *testing.T) {
	t.Parallel()
	now := time.Now()
	for name, tt := range map[string]struct {
		before, left int
		ago          time.Duration
		want         time.Duration // 0 = no end is expected
	}{
		"half a second":                {before: 3000, left: 1000, ago: time.Second, want: 500 * time.Millisecond},
		"as long as the interval":      {before: 2000, left: 1000, ago: time.Second},
		"nothing ended":                {before: 1000, left: 1000, ago: time.Second},
		"more are left than before":    {before: 1000, left: 1200, ago: time.Second},
		"none are left":                {before: 1000, left: 0, ago: time.Second},
		"the last count is a year old": {before: 1_000_001, left: 1_000_000, ago: 365 * 24 * time.Hour},
	} {
		before := counted{tally: mailingstore.Tally{Pending: tt.before - 5, Queued: 5}, at: now.Add(-tt.ago)}
		after := counted{tally: mailingstore.Tally{Queued: tt.left}, at: now}
		got := after.expectedEnd(before)
		if tt.want == 0 && !got.IsZero() || tt.want != 0 && !got.Equal(now.Add(tt.want)) {
			t.Errorf("%s: end expected at %s, want %s after %s", name, got, tt.want, now)
		}
	}
}
