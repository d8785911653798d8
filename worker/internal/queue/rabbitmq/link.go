package rabbitmq

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"golang.org/x/sync/singleflight"

	"email-gateway/shared/service"
)

// Waits before dialling again: doubled after every failure. A connection that lasted
// for stable counts as a success; one that ends sooner is part of the same trouble.
const (
	firstWait = 100 * time.Millisecond
	lastWait  = 5 * time.Second
	stable    = lastWait
)

// link keeps one connection for those who need it. It dials when somebody asks, and
// declares the topologies each time: a broker may come back empty.
type link struct {
	log        *slog.Logger
	dialer     *dialer
	topologies []Topology

	dialling singleflight.Group
	life     context.Context // ends when the link is closed
	end      context.CancelFunc

	mu       sync.Mutex
	current  *session
	flaws    []Flaw
	failures int
	failed   time.Time // when the last dial failed
	failure  error     // of that dial; nil after a success
	next     time.Time // when to dial again
	down     bool      // it was told that there is no connection
}

func newLink(log *slog.Logger, conn Conn, name string, topologies ...Topology) *link {
	l := &link{log: log.With("connection", name), dialer: newDialer(conn, name), topologies: topologies}
	l.life, l.end = context.WithCancel(context.Background())
	return l
}

// session returns the connection, and makes one if there is none. Nobody who has time
// leaves without one dial made while he waited: the pause after a failure takes at most
// half of what ctx leaves.
func (l *link) session(ctx context.Context) (*session, error) {
	s, wait := l.standing()
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
	case r := <-l.dialling.DoChan("", func() (any, error) { return l.dial() }):
		if r.Err != nil {
			return nil, r.Err
		}
		return r.Val.(*session), nil
	case <-ctx.Done():
		return nil, fmt.Errorf("wait for rabbitmq: %w", context.Cause(ctx))
	}
}

// standing is the connection if it lives, or else how long to wait before the next dial.
func (l *link) standing() (*session, time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.current != nil && l.current.alive() {
		return l.current, 0
	}
	return nil, time.Until(l.next)
}

// dial runs once at a time. Whoever waited beside another one's dial shares its result,
// also when it is a moment old.
func (l *link) dial() (*session, error) {
	l.mu.Lock()
	current, failure, failed := l.current, l.failure, l.failed
	l.mu.Unlock()
	switch {
	case l.life.Err() != nil:
		return nil, errClosed
	case current != nil && current.alive():
		return current, nil
	case failure != nil && time.Since(failed) < firstWait/2:
		return nil, failure
	}
	s, flaws, err := l.open()
	if err != nil {
		l.fail(err)
		return nil, err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.life.Err() != nil {
		s.close()
		return nil, errClosed
	}
	if l.down {
		l.log.Info("connected to rabbitmq again", "address", s.address)
	}
	l.current, l.failure, l.down = s, nil, false
	l.note(flaws)
	context.AfterFunc(s.ctx, func() { l.lost(s) })
	return s, nil
}

func (l *link) open() (*session, []Flaw, error) {
	d, err := l.dialer.dial(l.life)
	if err != nil {
		return nil, nil, err
	}
	s := newSession(d)
	go s.watch(l.log)
	flaws, err := s.declare(l.topologies)
	if err != nil {
		s.close()
		return nil, nil, err
	}
	return s, flaws, nil
}

// redeclare makes what has gone missing while the connection stood.
func (l *link) redeclare(s *session) error {
	flaws, err := s.declare(l.topologies)
	if err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if !sameFlaws(flaws, l.flaws) {
		l.note(flaws)
	}
	return nil
}

// note keeps what could not be declared and complains about it. l.mu is held.
func (l *link) note(flaws []Flaw) {
	l.flaws = flaws
	for _, f := range flaws {
		l.log.Error("rabbitmq stands otherwise than declared; it is used as it stands", "part", f.Part, "problem", f.Problem)
	}
}

func (l *link) fail(err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.failure, l.failed = err, time.Now()
	l.postpone()
	if !l.down && l.life.Err() == nil {
		l.log.Warn("no connection to rabbitmq; trying on", "error", err)
	}
	l.down = true
}

// lost is called when a connection has ended, for whatever reason.
func (l *link) lost(s *session) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.life.Err() != nil {
		return
	}
	if time.Since(s.begun) >= stable {
		l.failures = 0
	}
	l.postpone()
	if !l.down {
		l.log.Warn("connection to rabbitmq lost", "address", s.address, "error", context.Cause(s.ctx))
	}
	l.down = true
}

// postpone sets the time of the next dial. l.mu is held.
func (l *link) postpone() {
	l.next = time.Now().Add(min(firstWait<<min(l.failures, 10), lastWait))
	l.failures++
}

// close ends the connection for good.
func (l *link) close() {
	l.end()
	l.mu.Lock()
	s := l.current
	l.mu.Unlock()
	if s != nil && s.alive() {
		s.close()
	}
}

// Status is how a connection stands.
type Status struct {
	Connected bool
	// Blocked says why the broker takes no messages (its memory or disk is full); "" if
	// it does. It says so to connections that tried to publish only.
	Blocked string
	// Flaws are the parts of the topology that stand otherwise than declared, as of the
	// last time that they were declared.
	Flaws []Flaw
}

func (l *link) status() Status {
	l.mu.Lock()
	defer l.mu.Unlock()
	status := Status{Flaws: l.flaws, Connected: l.current != nil && l.current.alive()}
	if status.Connected {
		status.Blocked, _ = l.current.blocked()
	}
	return status
}
