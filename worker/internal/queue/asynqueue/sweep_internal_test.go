package asynqueue

import (
	"testing"

	"github.com/redis/go-redis/v9"
)

func TestTakesTask(t *testing.T) {
	t.Parallel()
	for name, args := range map[string][]any{
		"a task that is done": {"evalsha", "5e6c", 5, "asynq:{low}:active", "asynq:{low}:lease", "asynq:{low}:t:1", "asynq:{low}:processed:1", "asynq:{low}:processed", 1},
		"a requeued task":     {"evalsha", "5e6c", 4, "asynq:{low}:active", "asynq:{low}:lease", "asynq:{low}:pending", "asynq:{low}:t:1", 1},
		"a deleted queue":     {"evalsha", "5e6c", 6, "asynq:{low}:pending", "asynq:{low}:active", "asynq:{low}:scheduled", 1},
		"no script":           {"lrange", "asynq:{low}:pending", 0, "asynq:{low}:paused", "asynq:{low}:paused"},
		"no keys":             {"evalsha", "5e6c", 0},
	} {
		if takesTask(redis.NewCmd(t.Context(), args...)) {
			t.Errorf("%s counts as the script that takes a task", name)
		}
	}
	key := "asynq:{low}:"
	if !takesTask(redis.NewCmd(t.Context(), "evalsha", "5e6c", 4, key+"pending", key+"paused", key+"active", key+"lease", 1, key+"t:")) {
		t.Error("the script that takes a task is not recognized")
	}
}
