package asynqueue

import (
	"errors"
	"time"

	"github.com/hibiken/asynq"

	"email-gateway/shared/email"
	"email-gateway/worker/internal/queue"
)

// fault is a handler's error as asynq stores it with the task for the dashboard. Its text is masked.
type fault struct {
	text   string
	causes []error
	stack  []byte        // of a panic
	took   time.Duration // of the handler
}

func (f *fault) Error() string   { return f.text }
func (f *fault) Unwrap() []error { return f.causes }

// asFault converts the result of a handler for asynq: Dead archives the task, every other error retries it.
func asFault(err error) error {
	if err == nil {
		return nil
	}
	f := &fault{text: email.MaskText(err.Error()), causes: []error{err}}
	var dead *queue.Dead
	if errors.As(err, &dead) {
		f.causes = append(f.causes, asynq.SkipRetry)
	}
	return f
}

// Retry delays after an error without a delay: an internal error, a panic, or a crash that let the
// lease expire.
const (
	firstWait = time.Second
	lastWait  = 30 * time.Second
)

// rounding compensates for asynq, which truncates the due time to whole seconds. With half a second added, a task is taken at
// most 0.5 s before and 0.75 s after its time, which includes the forward interval, plus the pickup interval.
const rounding = 500 * time.Millisecond

// retryDelay returns the delay of a task that was delivered n times before.
func retryDelay(n int, err error, _ *asynq.Task) time.Duration {
	var later *queue.RetryLater
	if errors.As(err, &later) {
		return max(0, later.Delay) + rounding
	}
	// Five doublings of 1 s exceed 30 s.
	return min(firstWait<<min(n, 5), lastWait) + rounding
}
