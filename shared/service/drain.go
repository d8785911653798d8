package service

import (
	"context"
	"io"
	"net/http"
	"sync/atomic"
	"time"
)

// Drain keeps a stopping program serving until load balancers have noticed the stop. List it last
// in Run, so that it stops first, and add its delay to Run's grace.
type Drain struct {
	delay time.Duration
	begun atomic.Bool
}

// NewDrain returns a Drain. delay is how long load balancers need to notice that /readyz answers 503;
// 0 if there are none.
func NewDrain(delay time.Duration) *Drain { return &Drain{delay: delay} }

// Start does nothing.
func (*Drain) Start(context.Context, func(error)) error { return nil }

// Stop makes /readyz answer 503, and returns after the delay. Other requests are served meanwhile.
func (d *Drain) Stop(ctx context.Context) error {
	d.begun.Store(true)
	select {
	case <-time.After(d.delay):
	case <-ctx.Done():
	}
	return nil
}

// Handler serves next until Stop. From then on /readyz is 503, and every response closes its
// connection: otherwise a kept connection could be closed while the client sends its next request,
// and the client could not know whether that was processed.
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
		_, _ = io.WriteString(w, `{"status":"draining"}`+"\n") // the client may be gone
	})
}
