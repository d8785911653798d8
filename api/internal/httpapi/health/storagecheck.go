package health

import (
	"context"
	"sync"
	"time"

	"email-gateway/api/internal/httpapi/reqctx"
)

// storageFresh is how long the last result is reused: /health may be called often, and each
// check is a request to a server or a file on disk.
const storageFresh = 5 * time.Second

// storageCheck checks whether the blob store is usable.
type storageCheck struct {
	ping func(context.Context) error

	mu    sync.Mutex // held during a check
	asked time.Time
	said  string
}

// status checks the store, or returns the last result while it is fresh. It takes at most
// timeout; a client that disconnects does not affect the result.
func (s *storageCheck) status(ctx context.Context) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.asked.IsZero() && time.Since(s.asked) < storageFresh {
		return s.said
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), timeout)
	defer cancel()
	_, err := reqctx.WithDeadline(ctx, func(ctx context.Context) (struct{}, error) { return struct{}{}, s.ping(ctx) })
	s.asked, s.said = time.Now(), accessible
	if err != nil {
		s.said = inaccessible
	}
	return s.said
}
