package webhook

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	webhookstore "email-gateway/shared/store/webhook"
	"email-gateway/worker/internal/elapsed"
)

// held stores until when this process has a lease, by its own clock. It reads the clock before the database call, so
// the lease in the database ends later.
type held struct{ until atomic.Pointer[time.Time] }

func newHeld(start time.Time) *held {
	h := &held{}
	h.renewed(start)
	return h
}

func (h *held) renewed(start time.Time) {
	until := start.Add(leaseTime)
	h.until.Store(&until)
}

// mayAttempt reports whether an attempt that begins now ends before the lease does. It returns false after the process
// was frozen, or its machine suspended, for so long that the lease may be over.
func (h *held) mayAttempt() bool { return -elapsed.Since(*h.until.Load()) > leaseMargin }

// renew extends the lease until ctx ends. It calls cancel when the lease is lost.
func (s *Service) renew(ctx context.Context, cancel context.CancelFunc, l webhookstore.Lease, h *held) {
	defer cancel()
	ticker := time.NewTicker(leaseTime / 3)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		start := time.Now()
		trying, stop := context.WithTimeout(ctx, leaseTime/6)
		err := s.p.Store.Renew(trying, l, leaseTime)
		stop()
		switch {
		case err == nil:
			h.renewed(start)
		case errors.Is(err, webhookstore.ErrLeaseLost), !h.mayAttempt():
			return
		}
	}
}
