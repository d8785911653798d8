package asynqueue

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/redis/go-redis/v9"

	"email-gateway/worker/internal/queue/redistest"
)

// pipelines counts the pipelines of a client.
type pipelines struct{ atomic.Int64 }

func (f *pipelines) DialHook(next redis.DialHook) redis.DialHook          { return next }
func (f *pipelines) ProcessHook(next redis.ProcessHook) redis.ProcessHook { return next }
func (f *pipelines) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		f.Add(1)
		return next(ctx, cmds)
	}
}

// Four callers that each send the next command after an answer share their pipelines: none is sent
// alone because it was ready first.
func TestCoalescer_BatchesReadyCallers(t *testing.T) {
	t.Parallel()
	url, _ := redistest.Shared(t)
	options, err := redis.ParseURL(url)
	if err != nil {
		t.Fatal(err)
	}
	client := redis.NewClient(options)
	t.Cleanup(func() {
		if err := client.Close(); err != nil {
			t.Error(err)
		}
	})
	if err := client.ScriptLoad(t.Context(), "return 1").Err(); err != nil {
		t.Fatal(err)
	}
	script := redis.NewScript("return 1")
	var counted pipelines
	client.AddHook(&counted)
	client.AddHook(newCoalescer(client))
	const callers, calls = 4, 500
	var calling sync.WaitGroup
	for range callers {
		calling.Go(func() {
			for range calls {
				if err := script.EvalSha(t.Context(), client, nil).Err(); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	calling.Wait()
	if n := counted.Load(); n > callers*calls/3 {
		t.Errorf("%d calls in %d pipelines", callers*calls, n)
	}
}
