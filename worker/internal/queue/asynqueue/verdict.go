package asynqueue

import (
	"errors"
	"time"

	"github.com/hibiken/asynq"

	"email-gateway/shared/email"
	"email-gateway/worker/internal/queue"
)

// fault is a handler's error on its way through asynq, which keeps its text beside
// the task for the dashboard: so the text is masked here.
type fault struct {
	text   string
	causes []error
	stack  []byte        // of a panic
	took   time.Duration // of the handler
}

func (f *fault) Error() string   { return f.text }
func (f *fault) Unwrap() []error { return f.causes }

// verdict tells asynq what the handler's answer means: Dead archives the task,
// everything else is tried again.
func verdict(err error) error {
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

// Waits after an error that does not say how long to wait: a fault of ours, a panic,
// a crash that let the lease run out.
const (
	firstWait = time.Second
	lastWait  = 30 * time.Second
)

// rounding makes up for asynq, which drops the fraction of the second at which a
// task is due. Aimed half a second later the task comes at most 0.5 s before and
// 0.75 s after its time (the rest is the forward interval), plus the pick-up.
const rounding = 500 * time.Millisecond

// retryDelay says how long a task waits that was delivered n times before.
func retryDelay(n int, err error, _ *asynq.Task) time.Duration {
	var later *queue.RetryLater
	if errors.As(err, &later) {
		return max(0, later.Delay) + rounding
	}
	// Five doublings of 1 s pass 30 s.
	return min(firstWait<<min(n, 5), lastWait) + rounding
}
