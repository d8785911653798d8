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
