package asynqueue

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/redis/go-redis/v9"

	"email-gateway/worker/internal/queue/redistest"
)

// A node that freezes costs each caller one timeout at most. Then commands and pipelines fail
// immediately and the slot map is reloaded, until the node answers.
func TestNodeGuard(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	o, err := redis.ParseURL(server.URL)
	if err != nil {
		t.Fatal(err)
	}
	o.ReadTimeout, o.MaxRetries, o.ContextTimeoutEnabled = ioTimeout, -1, true
	client := redis.NewClient(o)
	t.Cleanup(func() { _ = client.Close() })
	var reloads atomic.Int32
	client.AddHook(&nodeGuard{node: client, reload: func() { reloads.Add(1) }})
	if err := client.Get(t.Context(), "nothing").Err(); !errors.Is(err, redis.Nil) {
		t.Fatalf("a key that is not there: %v", err)
	}
	if n := reloads.Load(); n != 0 {
		t.Errorf("%d reloads of a healthy node", n)
	}

	server.Freeze()
	t.Cleanup(server.Thaw)
	start := time.Now()
	for client.Get(t.Context(), "nothing").Err() != errNodeDown { //nolint:errorlint // returned unwrapped
		if time.Since(start) > time.Minute {
			t.Fatal("a frozen node is asked again and again")
		}
	}
	took := time.Since(start)
	t.Logf("frozen: commands fail immediately after %s", took.Round(time.Millisecond))
	pipe := client.Pipeline()
	cmd := pipe.Get(t.Context(), "nothing")
	if _, err := pipe.Exec(t.Context()); !errors.Is(err, errNodeDown) || !errors.Is(cmd.Err(), errNodeDown) {
		t.Errorf("a pipeline to a node that is down: %v, its command: %v", err, cmd.Err())
	}
	if reloads.Load() == 0 {
		t.Error("the slot map was not reloaded")
	}

	server.Thaw()
	start = time.Now()
	for !errors.Is(client.Get(t.Context(), "nothing").Err(), redis.Nil) {
		if time.Since(start) > time.Minute {
			t.Fatal("a node that answers again is not used")
		}
	}
}

// asynq's loops over all queues find nothing in a queue whose node is down.
func TestSweeps(t *testing.T) {
	t.Parallel()
	down := sweeps{}.ProcessHook(func(_ context.Context, cmd redis.Cmder) error {
		cmd.SetErr(errNodeDown)
		return errNodeDown
	})
	for name, tt := range map[string]struct {
		args []any
		want any
		err  error
	}{
		"fetch":        {[]any{"evalsha", "5e6c", 4, "asynq:{low}:pending", "asynq:{low}:paused", "asynq:{low}:active", "asynq:{low}:lease", 1}, nil, redis.Nil},
		"forward":      {[]any{"evalsha", "5e6c", 2, "asynq:{low}:scheduled", "asynq:{low}:pending", 1}, int64(0), nil},
		"ended leases": {[]any{"evalsha", "5e6c", 1, "asynq:{low}:lease", 1}, []any{}, nil},
		"a result":     {[]any{"evalsha", "5e6c", 5, "asynq:{low}:active", "asynq:{low}:lease", "asynq:{low}:t:1", "asynq:{low}:processed:1", "asynq:{low}:processed", 1}, nil, errNodeDown},
		"no script":    {[]any{"zadd", "asynq:{low}:lease", 1, "1"}, nil, errNodeDown},
	} {
		cmd := redis.NewCmd(t.Context(), tt.args...)
		err := down(t.Context(), cmd)
		if !errors.Is(err, tt.err) || !errors.Is(cmd.Err(), tt.err) {
			t.Errorf("%s: %v, and the command's error is %v; want %v", name, err, cmd.Err(), tt.err)
		}
		if diff := cmp.Diff(tt.want, cmd.Val()); diff != "" {
			t.Errorf("%s (-want +got)\n%s", name, diff)
		}
	}
	length := redis.NewIntCmd(t.Context(), "llen", "asynq:{low}:pending")
	if err := down(t.Context(), length); err != nil || length.Err() != nil || length.Val() != 0 {
		t.Errorf("length: %d, error %v, and the command's error is %v; want none", length.Val(), err, length.Err())
	}
}
