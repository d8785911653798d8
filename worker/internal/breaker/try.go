package breaker

import (
	"errors"
	"sync"

	"email-gateway/shared/store"
)

// sharedTry bounds the connections of this process that wait for another session's lock on the
// breaker's row: calls that fail while a write waits for the lock share its error, and only later
// calls write again.
type sharedTry struct {
	mu       sync.Mutex
	underWay *lockTry
}

// lockTry is a running write and whether the row was locked. locked is set before done is closed.
type lockTry struct {
	done   chan struct{}
	locked bool
}

// do runs write, unless a concurrent write returns ErrBreakerLocked: then it returns that error with
// shared = true.
func (s *sharedTry) do(write func() error) (shared bool, err error) {
	s.mu.Lock()
	other := s.underWay
	if other != nil {
		s.mu.Unlock()
		if <-other.done; other.locked {
			return true, store.ErrBreakerLocked
		}
		return false, write()
	}
	mine := &lockTry{done: make(chan struct{})}
	s.underWay = mine
	s.mu.Unlock()
	err = write()
	mine.locked = errors.Is(err, store.ErrBreakerLocked)
	s.mu.Lock()
	s.underWay = nil
	s.mu.Unlock()
	close(mine.done)
	return false, err
}
