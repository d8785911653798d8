package asynqueue

import (
	"errors"
	"time"

	"github.com/hibiken/asynq"

	"email-gateway/worker/internal/queue"
)

// Retry delays after an error without a delay: an internal error, a panic, or a crash that let the
// lease expire.
const (
	firstWait = time.Second
	lastWait  = 30 * time.Second
)

// rounding compensates for asynq, which truncates the due time to whole seconds. With half a second added, a task is taken at
// most 0.5 s before and 0.75 s after its time, which includes the forward interval, plus the pickup interval.
const rounding = 500 * time.Millisecond

// retryDelay is asynq's RetryDelayFunc for a task that was delivered n times before. A handler's *queue.RetryLater
// reaches asynq as its result.
func retryDelay(n int, err error, _ *asynq.Task) time.Duration {
	var later *queue.RetryLater
	if errors.As(err, &later) {
		return max(0, later.Delay) + rounding
	}
	// Five doublings of 1 s exceed 30 s.
	return min(firstWait<<min(n, 5), lastWait) + rounding
}
