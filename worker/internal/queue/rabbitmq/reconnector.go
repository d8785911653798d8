package rabbitmq

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/google/uuid"
	"golang.org/x/sync/singleflight"

	"email-gateway/shared/service"
)

// Waits before dialing again, doubled after each failure. A connection counts as a success if it lasted for at least stable,
// and as a failure otherwise.
const (
	firstWait = 100 * time.Millisecond
	lastWait  = 5 * time.Second
	stable    = lastWait
)

// reconnector maintains one connection for its users. It dials on demand and declares the
// topologies each time, since a broker may restart empty.
type reconnector struct {
	log        *slog.Logger
	dialer     *dialer
	topologies []Topology
	identify   func(context.Context) (uuid.UUID, error) // see Conn

	dialling singleflight.Group
	life     context.Context // ends when the reconnector is closed
	end      context.CancelFunc

	mu         sync.Mutex
	current    *session
	mismatches []Mismatch
	failures   int
	failed     time.Time // when the last dial failed
	failure    error     // of that dial; nil after a success
	next       time.Time // when to dial again
	down       bool      // the outage has been logged
}

func newReconnector(log *slog.Logger, conn Conn, name string, topologies ...Topology) *reconnector {
	r := &reconnector{log: log.With("connection", name), dialer: newDialer(conn, name), topologies: topologies, identify: conn.identify}
	r.life, r.end = context.WithCancel(context.Background())
	return r
}

// session returns the connection, and dials if there is none. For a caller with a deadline, the pause after a failure takes at
// most half of the remaining time, so that it never fails without a dial.
func (r *reconnector) session(ctx context.Context) (*session, error) {
	s, wait := r.currentSession()
	if s != nil {
		return s, nil
	}
	if deadline, ok := ctx.Deadline(); ok {
		wait = min(wait, time.Until(deadline)/2)
	}
	if wait > 0 {
		if err := service.Pause(ctx, wait); err != nil {
			return nil, fmt.Errorf("wait for rabbitmq: %w", err)
		}
	}
	select {
	case outcome := <-r.dialling.DoChan("", func() (any, error) { return r.dial() }):
		if outcome.Err != nil {
			return nil, outcome.Err
		}
		return outcome.Val.(*session), nil
	case <-ctx.Done():
		return nil, fmt.Errorf("wait for rabbitmq: %w", context.Cause(ctx))
	}
}

// currentSession returns the connection if it is alive, or else the wait before the next dial.
func (r *reconnector) currentSession() (*session, time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.current != nil && r.current.alive() {
		return r.current, 0
	}
	return nil, time.Until(r.next)
}

// dial runs once at a time. Callers that waited for the dial of another caller share its result, including a failure that is at
// most firstWait/2 old.
func (r *reconnector) dial() (*session, error) {
	r.mu.Lock()
	current, failure, failed := r.current, r.failure, r.failed
	r.mu.Unlock()
	switch {
	case r.life.Err() != nil:
		return nil, errClosed
	case current != nil && current.alive():
		return current, nil
	case failure != nil && time.Since(failed) < firstWait/2:
		return nil, failure
	}
	s, mismatches, err := r.open()
	if err != nil {
		r.fail(err)
		return nil, err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.life.Err() != nil {
		s.close()
		return nil, errClosed
	}
	if r.down {
		r.log.Info("connected to rabbitmq again", "address", s.address)
	}
	r.current, r.failure, r.down = s, nil, false
	r.note(mismatches)
	context.AfterFunc(s.ctx, func() { r.lost(s) })
	return s, nil
}

func (r *reconnector) open() (*session, []Mismatch, error) {
	d, err := r.dialer.dial(r.life)
	if err != nil {
		return nil, nil, err
	}
	s := newSession(d)
	go s.watch(r.log)
	mismatches, err := r.declare(s)
	if err != nil {
		s.close()
		return nil, nil, err
	}
	return s, mismatches, nil
}

// declare declares the marker of the installation and the topologies.
func (r *reconnector) declare(s *session) ([]Mismatch, error) {
	marker, err := r.marker()
	if err != nil {
		return nil, err
	}
	return s.declare(marker, r.topologies)
}

// redeclare declares the parts that have disappeared while the connection was alive.
func (r *reconnector) redeclare(s *session) error {
	mismatches, err := r.declare(s)
	if err != nil {
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if !sameMismatches(mismatches, r.mismatches) {
		r.note(mismatches)
	}
	return nil
}

// note stores and logs the mismatches. r.mu must be held.
func (r *reconnector) note(mismatches []Mismatch) {
	r.mismatches = mismatches
	for _, f := range mismatches {
		r.log.Error("rabbitmq topology differs from the declaration, using the existing one", "part", f.Part, "problem", f.Problem)
	}
}

func (r *reconnector) fail(err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.failure, r.failed = err, time.Now()
	r.postpone()
	if !r.down && r.life.Err() == nil {
		r.log.Warn("no connection to rabbitmq, retrying", "error", err)
	}
	r.down = true
}

// lost handles the end of a connection, for whatever reason.
func (r *reconnector) lost(s *session) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.life.Err() != nil {
		return
	}
	if time.Since(s.startedAt) >= stable {
		r.failures = 0
	}
	r.postpone()
	if !r.down {
		r.log.Warn("connection to rabbitmq lost", "address", s.address, "error", context.Cause(s.ctx))
	}
	r.down = true
}

// postpone sets the time of the next dial. r.mu must be held.
func (r *reconnector) postpone() {
	r.next = time.Now().Add(min(firstWait<<min(r.failures, 10), lastWait))
	r.failures++
}

// close closes the connection permanently.
func (r *reconnector) close() {
	r.end()
	r.mu.Lock()
	s := r.current
	r.mu.Unlock()
	if s != nil && s.alive() {
		s.close()
	}
}

// Status is the state of a connection.
type Status struct {
	Connected bool
	// Blocked is why the broker accepts no messages (its memory or disk is full); "" if it does.
	// The broker reports it only to connections that tried to publish.
	Blocked string
	// Mismatches are the parts of the topology that differ from the declaration, as of the last
	// declaration.
	Mismatches []Mismatch
}

func (r *reconnector) status() Status {
	r.mu.Lock()
	defer r.mu.Unlock()
	status := Status{Mismatches: r.mismatches, Connected: r.current != nil && r.current.alive()}
	if status.Connected {
		status.Blocked, _ = r.current.blocked()
	}
	return status
}
