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
	errNoAnswer = errors.New("no response from rabbitmq")
)

// session is one connection, from the handshake to its end. Its channels end with it and are never
// reopened: an acknowledgement belongs to the channel that delivered the message.
type session struct {
	conn      *amqp.Connection
	socket    net.Conn
	address   string // of the node
	startedAt time.Time

	ctx context.Context // ends with the connection; the cause is the error
	end context.CancelCauseFunc

	mu        sync.Mutex
	reason    string        // why the broker accepts no messages
	unblocked chan struct{} // closed when it accepts them again; nil while it does
}

func newSession(d dialed) *session {
	s := &session{conn: d.conn, socket: d.socket, address: d.address, startedAt: time.Now()}
	s.ctx, s.end = context.WithCancelCause(context.Background())
	return s
}

func (s *session) alive() bool { return s.ctx.Err() == nil }

// watch receives the notifications of the broker about the connection until it ends. The library blocks until they are
// received.
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

// block records that the broker accepts no messages (its memory or disk is full), or accepts them
// again. While blocked it does not even read from a connection that has published.
func (s *session) block(log *slog.Logger, b amqp.Blocking) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case b.Active && s.unblocked == nil:
		s.reason, s.unblocked = b.Reason, make(chan struct{})
		log.Error("rabbitmq accepts no messages", "reason", b.Reason)
	case !b.Active && s.unblocked != nil:
		close(s.unblocked)
		s.reason, s.unblocked = "", nil
		log.Info("rabbitmq accepts messages again")
	}
}

// blocked returns why the broker accepts no messages, "" if it does, and a channel that is closed
// when it does again.
func (s *session) blocked() (reason string, unblocked <-chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.reason, s.unblocked
}

// withTimeout runs synchronous calls to the broker. They do not support a context, so after limit
// it closes the connection, which ends them.
func (s *session) withTimeout(limit time.Duration, calls func() error) error {
	timer := time.AfterFunc(limit, func() { s.kill(fmt.Errorf("%w within %s", errNoAnswer, limit)) })
	defer timer.Stop()
	err := calls()
	if err != nil && !s.alive() {
		return context.Cause(s.ctx)
	}
	return err
}

// kill closes the socket without the closing handshake.
func (s *session) kill(cause error) {
	s.end(cause)
	_ = s.socket.Close()
}

// close closes the connection with the closing handshake.
func (s *session) close() {
	if err := s.conn.CloseDeadline(time.Now().Add(callTime)); err != nil {
		s.kill(errClosed)
	}
	s.end(errClosed)
}
