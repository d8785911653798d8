package service

import (
	"context"
	"io"
	"net/http"
	"sync/atomic"
	"time"
)

// Drain keeps a program that was asked to stop serving until load balancers have noticed. List
// it last in Run, so that it stops first, and add its delay to Run's grace.
type Drain struct {
	delay time.Duration
	begun atomic.Bool
}

// NewDrain makes a Drain. delay is how long balancers take to see that /readyz answers 503:
// 0 where there are none.
func NewDrain(delay time.Duration) *Drain { return &Drain{delay: delay} }

// Start does nothing.
func (*Drain) Start(context.Context, func(error)) error { return nil }

// Stop makes /readyz answer 503, and returns after the delay. All else is served meanwhile.
func (d *Drain) Stop(ctx context.Context) error {
	d.begun.Store(true)
	select {
	case <-time.After(d.delay):
	case <-ctx.Done():
	}
	return nil
}

// Handler answers as next does until Stop. From then on /readyz is 503, and every answer ends
// its connection: a connection that a client keeps could be closed at the moment in which the
// client sends its next request on it, and the client could not know whether that was processed.
func (d *Drain) Handler(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !d.begun.Load() {
			next.ServeHTTP(w, r)
			return
		}
		w.Header().Set("Connection", "close")
		if r.URL.Path != "/readyz" {
			next.ServeHTTP(w, r)
			return
		}
		w.Header().Set("Cache-Control", "no-store")
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusServiceUnavailable)
		_, _ = io.WriteString(w, `{"status":"draining"}`+"\n") // the reader may be gone
	})
}
