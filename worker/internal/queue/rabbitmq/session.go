package rabbitmq

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"sync"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
)

var (
	errClosed   = errors.New("the connection to rabbitmq was closed")
	errNoAnswer = errors.New("rabbitmq does not answer")
)

// session is one connection, from the handshake to its end. What was opened on it ends
// with it and is never revived: an acknowledgement belongs to the channel on which the
// message came.
type session struct {
	conn    *amqp.Connection
	socket  net.Conn
	address string // of the node
	begun   time.Time

	ctx context.Context // ends with the connection; its cause says why
	end context.CancelCauseFunc

	mu     sync.Mutex
	reason string        // why the broker takes no messages
	lifted chan struct{} // closed when it takes them again; nil while it does
}

func newSession(d dialed) *session {
	s := &session{conn: d.conn, socket: d.socket, address: d.address, begun: time.Now()}
	s.ctx, s.end = context.WithCancelCause(context.Background())
	return s
}

func (s *session) alive() bool { return s.ctx.Err() == nil }

// watch takes what the broker says about the connection as a whole, until it ends. The
// library waits for whoever it tells.
func (s *session) watch(log *slog.Logger) {
	closes := s.conn.NotifyClose(make(chan *amqp.Error, 1))
	blocks := s.conn.NotifyBlocked(make(chan amqp.Blocking, 1))
	for {
		select {
		case b, open := <-blocks:
			if !open {
				blocks = nil
				continue
			}
			s.block(log, b)
		case err := <-closes:
			if err == nil {
				s.end(errClosed)
			} else {
				s.end(fmt.Errorf("%w: %w", errClosed, err))
			}
			return
		}
	}
}

// block notes that the broker takes no messages any more (its memory or disk is full),
// or takes them again. It then does not even read from a connection that published.
func (s *session) block(log *slog.Logger, b amqp.Blocking) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case b.Active && s.lifted == nil:
		s.reason, s.lifted = b.Reason, make(chan struct{})
		log.Error("rabbitmq takes no messages", "reason", b.Reason)
	case !b.Active && s.lifted != nil:
		close(s.lifted)
		s.reason, s.lifted = "", nil
		log.Info("rabbitmq takes messages again")
	}
}

// blocked says why the broker takes no messages, "" if it does, and when that is over.
func (s *session) blocked() (reason string, lifted <-chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.reason, s.lifted
}

// within runs calls that wait for the broker. They know no context, and only the end of
// the connection ends them: so that is what happens after limit.
func (s *session) within(limit time.Duration, calls func() error) error {
	timer := time.AfterFunc(limit, func() { s.kill(fmt.Errorf("%w within %s", errNoAnswer, limit)) })
	defer timer.Stop()
	err := calls()
	if err != nil && !s.alive() {
		return context.Cause(s.ctx)
	}
	return err
}

// kill ends the connection without a word.
func (s *session) kill(cause error) {
	s.end(cause)
	_ = s.socket.Close()
}

// close ends the connection in good order.
func (s *session) close() {
	if err := s.conn.CloseDeadline(time.Now().Add(callTime)); err != nil {
		s.kill(errClosed)
	}
	s.end(errClosed)
}
