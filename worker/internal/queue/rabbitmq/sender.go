package rabbitmq

import (
	"context"
	"errors"
	"fmt"
	"sync"

	amqp "github.com/rabbitmq/amqp091-go"
	"golang.org/x/sync/singleflight"

	"email-gateway/worker/internal/queue"
)

// sender publishes on a separate connection: while its memory is full, the broker does not read from connections that publish,
// neither calls nor acknowledgements.
type sender struct {
	conn    *reconnector
	opening singleflight.Group

	mu    sync.Mutex
	out   *publishChannel
	stale bool // a part of the topology was missing
}

func newSender(l *reconnector) *sender { return &sender{conn: l} }

// send publishes a message and waits for the confirm of the broker, or until ctx ends. After an error the message may or may
// not be queued, unless the error wraps queue.ErrNotPublished.
func (s *sender) send(ctx context.Context, to Queue, message amqp.Publishing) error {
	o, err := s.channel(ctx)
	if err == nil {
		err = o.publish(ctx, to, message)
	} else {
		err = unsent(err)
	}
	if err == nil {
		return nil
	}
	if errors.Is(err, errUnroutable) {
		s.markStale()
	}
	return fmt.Errorf("publish to %s: %w", to.Name, err)
}

// unsent marks the error of a message of which nothing was written to the connection.
func unsent(err error) error { return fmt.Errorf("%w: %w", queue.ErrNotPublished, err) }

// markStale records that a part of the topology is missing. It is declared again before the next message.
func (s *sender) markStale() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stale = true
}

func (s *sender) channel(ctx context.Context) (*publishChannel, error) {
	session, err := s.conn.session(ctx)
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	o, stale := s.out, s.stale
	s.mu.Unlock()
	if !stale && o != nil && o.session == session && o.alive() {
		return o, nil
	}
	select {
	case r := <-s.opening.DoChan("", func() (any, error) { return s.open(session) }):
		if r.Err != nil {
			return nil, r.Err
		}
		return r.Val.(*publishChannel), nil
	case <-ctx.Done():
		return nil, fmt.Errorf("wait for a channel: %w", context.Cause(ctx))
	}
}

// open runs once at a time. If a channel has ended and its connection has not, an exchange is probably missing: the topology is
// declared again.
func (s *sender) open(session *session) (*publishChannel, error) {
	s.mu.Lock()
	o, stale := s.out, s.stale
	s.stale = false // parts reported from now on are declared the next time
	s.mu.Unlock()
	ours := o != nil && o.session == session
	if stale || ours && !o.alive() {
		if err := s.conn.redeclare(session); err != nil {
			s.markStale()
			return nil, err
		}
	}
	if ours && o.alive() {
		return o, nil
	}
	err := session.withTimeout(callTime, func() (err error) {
		o, err = newPublishChannel(session)
		return err
	})
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.out = o
	return o, nil
}
