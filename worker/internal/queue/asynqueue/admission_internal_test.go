package asynqueue

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"email-gateway/worker/internal/queue/redistest"
)

// counted admits everything and counts.
type counted struct{ admitted, unused int }

func (c *counted) Admit(context.Context, int) (time.Time, error) {
	c.admitted++
	return time.Now(), nil
}

func (c *counted) Unused()               { c.unused++ }
func (c *counted) Used(time.Time)        {}
func (c *counted) Begin() (at time.Time) { return at }
func (c *counted) End()                  {}

// A restarted Redis does not know the script that takes a task: the script is sent again by EVAL,
// under the same admission.
func TestAdmitted_UnknownScript(t *testing.T) {
	t.Parallel()
	url := redistest.Start(t).URL
	o, err := redis.ParseURL(url)
	if err != nil {
		t.Fatal(err)
	}
	server := redis.NewClient(o)
	t.Cleanup(func() { _ = server.Close() })
	count := &counted{}
	client := &admitted{UniversalClient: server, admission: count, stopping: t.Context()}
	keys := []string{"asynq:{q}:pending", "asynq:{q}:paused", "asynq:{q}:active", "asynq:{q}:lease"}
	script := redis.NewScript(`return redis.call("RPOPLPUSH", KEYS[1], KEYS[3])`)
	for round := 1; round <= 2; round++ {
		if err := script.Run(t.Context(), client, keys).Err(); !errors.Is(err, redis.Nil) {
			t.Fatalf("err = %v, want an empty queue", err)
		}
		if count.admitted != round || count.unused != round {
			t.Errorf("%d admissions and %d unused after %d scripts", count.admitted, count.unused, round)
		}
	}
}
