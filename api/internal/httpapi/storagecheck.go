package httpapi

import (
	"context"
	"sync"
	"time"
)

// storageFresh is how long the blob store's last answer stands: /health may be asked
// by many, and each question is a request to a server or a file on a disk.
const storageFresh = 5 * time.Second

// storageCheck knows whether the blob store can be used.
type storageCheck struct {
	ping func(context.Context) error

	mu    sync.Mutex // held while the store is asked
	asked time.Time
	said  string
}

// status asks the store, or repeats what it said a moment ago. It takes healthTimeout
// at most, and a client who leaves does not make the store look bad. nil knows of no
// store.
func (s *storageCheck) status(ctx context.Context) string {
	if s == nil {
		return disabled
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.asked.IsZero() && time.Since(s.asked) < storageFresh {
		return s.said
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), healthTimeout)
	defer cancel()
	_, err := within(ctx, func(ctx context.Context) (struct{}, error) { return struct{}{}, s.ping(ctx) })
	s.asked, s.said = time.Now(), accessible
	if err != nil {
		s.said = inaccessible
	}
	return s.said
}
