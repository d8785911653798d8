package asynqueue

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

// counted admits everything and counts.
type counted struct{ admitted, used, unused int }

func (c *counted) Admit(_ context.Context, _ int, pending func() bool) (time.Time, error) {
	if !pending() {
		return time.Time{}, nil
	}
	c.admitted++
	return time.Now(), nil
}

func (c *counted) Unused()               { c.unused++ }
func (c *counted) Used(time.Time)        { c.used++ }
func (c *counted) Begin() (at time.Time) { return at }
func (c *counted) End()                  {}

// A restarted Redis does not know the script that takes a task: the script is sent again by EVAL, under the same
// admission. After a task the next one is taken without a look at the queue, and an empty queue needs no admission.
func TestAdmitted_Scripts(t *testing.T) {
	t.Parallel()
	i, server := newIdling(t, time.Hour)
	count := &counted{}
	i.UniversalClient = &admitted{UniversalClient: server, admission: count, stopping: t.Context(), busy: make(map[string]bool)}
	if err := server.LPush(t.Context(), takingKeys[0], "a", "b").Err(); err != nil {
		t.Fatal(err)
	}
	for n, want := range []counted{{1, 1, 0}, {2, 2, 0}, {3, 2, 1}, {3, 2, 1}} {
		if err := i.look(t); (err == nil) != (n < 2) || err != nil && !errors.Is(err, redis.Nil) {
			t.Fatalf("script %d: %v", n, err)
		}
		if *count != want {
			t.Errorf("after script %d: %+v, want %+v", n, *count, want)
		}
	}
}

// A Redis that does not tell the length of a queue is not sent the script: it might execute it after the caller has left.
func TestAdmitted_UnknownLength(t *testing.T) {
	t.Parallel()
	i, server := newIdling(t, time.Hour)
	count := &counted{}
	i.UniversalClient = &admitted{UniversalClient: server, admission: count, stopping: t.Context(), busy: make(map[string]bool)}
	if err := server.Set(t.Context(), takingKeys[0], "", 0).Err(); err != nil { // not a list
		t.Fatal(err)
	}
	if err := i.look(t); !redis.HasErrorPrefix(err, "WRONGTYPE") || *count != (counted{}) || i.refusal == 0 {
		t.Errorf("%v, %+v and a pause of %s, want the error of Redis, no admission and a pause", err, *count, i.refusal)
	}
}
