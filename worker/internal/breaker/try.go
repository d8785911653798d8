package breaker

import (
	"context"
	"errors"
	"log/slog"
	"sync"

	"email-gateway/shared/service"
	"email-gateway/shared/store"
	breakerstore "email-gateway/shared/store/breaker"
)

// sharedTry bounds the connections of this process that wait for another session's lock on the
// breaker's row: calls that fail while a write waits for the lock share its error, and only later
// calls write again.
type sharedTry struct {
	mu      sync.Mutex
	running *lockTry
}

// lockTry is a running write and whether the row was locked. locked is set before done is closed.
type lockTry struct {
	done   chan struct{}
	locked bool
}

// do runs write, unless a concurrent write returns breakerstore.ErrLocked: then it returns that error with
// shared = true.
func (s *sharedTry) do(write func() error) (shared bool, err error) {
	s.mu.Lock()
	other := s.running
	if other != nil {
		s.mu.Unlock()
		if <-other.done; other.locked {
			return true, breakerstore.ErrLocked
		}
		return false, write()
	}
	mine := &lockTry{done: make(chan struct{})}
	s.running = mine
	s.mu.Unlock()
	err = write()
	mine.locked = errors.Is(err, breakerstore.ErrLocked)
	s.mu.Lock()
	s.running = nil
	s.mu.Unlock()
	close(mine.done)
	return false, err
}

// levelOf is the log level of a failed write that will be retried later.
func levelOf(err error) slog.Level {
	if errors.Is(err, breakerstore.ErrLocked) {
		return slog.LevelWarn
	}
	return slog.LevelError
}

// retryUntilAnswered repeats an operation until the database answers, but does not wait for a locked row. The
// call is over: neither a stop nor the queue may prevent its result from being recorded.
func retryUntilAnswered(do func(ctx context.Context) error) error {
	ctx := context.Background()
	for {
		err := do(ctx)
		if !store.IsOutage(err) || errors.Is(err, breakerstore.ErrLocked) {
			return err
		}
		if err := service.Pause(ctx, repeatDelay); err != nil {
			return err
		}
	}
}
