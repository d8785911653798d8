package rabbitmq

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
)

var (
	errUnroutable = errors.New("no queue is bound to the routing key")
	errRefused    = errors.New("rabbitmq refused the message")
	errNoConfirm  = errors.New("no confirm from rabbitmq")
)

// confirmTime is how long a channel may have unconfirmed messages without any confirm before it is closed. A channel that was
// opened while a queue had no leader may never confirm, although its connection responds; a new channel finds the new leader. A
// broker whose memory is full reports that earlier.
const confirmTime = 4 * time.Second

// publishChannel is one channel for publishing. Many goroutines publish on it concurrently, and
// each waits for its own confirm.
type publishChannel struct {
	session *session
	channel *amqp.Channel

	ctx context.Context // ends with the channel; the cause is the error
	end context.CancelCauseFunc

	requests chan *publication
	marked   chan chan struct{} // see wasReturned
	sorted   chan struct{}      // closed after the last return was marked

	mu       sync.Mutex
	inFlight map[string][]*publication // by message id
	silent   time.Time                 // the last confirm, or when the first message was added; zero = no message is in flight
}

// publication is one message in flight.
type publication struct {
	to      Queue
	message amqp.Publishing

	written      chan struct{} // closed when the next two are set
	confirmation *amqp.DeferredConfirmation
	err          error

	returned bool // returned by the broker; guarded by mu of the channel
}

// newPublishChannel opens a channel on the session.
func newPublishChannel(s *session) (*publishChannel, error) {
	channel, err := s.conn.Channel()
	if err != nil {
		return nil, fmt.Errorf("open channel: %w", err)
	}
	c := &publishChannel{
		session: s, channel: channel,
		requests: make(chan *publication), marked: make(chan chan struct{}), sorted: make(chan struct{}),
		inFlight: make(map[string][]*publication),
	}
	c.ctx, c.end = context.WithCancelCause(context.Background())
	closes := channel.NotifyClose(make(chan *amqp.Error, 1))
	// Unbuffered: when the library processes the confirm, the return has been received.
	returns := channel.NotifyReturn(make(chan amqp.Return))
	if err := channel.Confirm(false); err != nil {
		c.end(errClosed)
		return nil, fmt.Errorf("enable publisher confirms: %w", err)
	}
	go c.write()
	go c.sortReturns(returns)
	go func() {
		if err := <-closes; err != nil {
			c.end(fmt.Errorf("%w: %w", errClosed, err))
		}
		c.end(errClosed)
	}()
	return c, nil
}

func (c *publishChannel) alive() bool { return c.ctx.Err() == nil }

// write passes the messages to the library one after the other: a blocked socket blocks this goroutine, but no publisher.
func (c *publishChannel) write() {
	for {
		select {
		case p := <-c.requests:
			p.confirmation, p.err = c.channel.PublishWithDeferredConfirm(p.to.Exchange, p.to.Key, true, false, p.message)
			close(p.written)
		case <-c.ctx.Done():
			return
		}
	}
}

// sortReturns marks the returned messages until the channel has ended.
func (c *publishChannel) sortReturns(returns <-chan amqp.Return) {
	defer close(c.sorted)
	for {
		select {
		case r, open := <-returns:
			if !open {
				return
			}
			c.mu.Lock()
			for _, p := range c.inFlight[r.MessageId] {
				p.returned = true
			}
			c.mu.Unlock()
		case done := <-c.marked:
			close(done)
		}
	}
}

// wasReturned reports, after a confirm, whether the message was returned: the broker returns an unroutable message and then
// confirms it. The return is received before the confirm, so sortReturns has marked the message when it receives from marked.
func (c *publishChannel) wasReturned(p *publication) bool {
	done := make(chan struct{})
	select {
	case c.marked <- done:
		<-done
	case <-c.sorted:
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return p.returned
}

// publish returns nil when the broker has stored the message on a queue. After an error the message may be stored too, unless
// the error wraps queue.ErrNotPublished.
func (c *publishChannel) publish(ctx context.Context, to Queue, message amqp.Publishing) error {
	if ctx.Err() != nil {
		return unsent(c.contextError(ctx))
	}
	if err := c.awaitUnblocked(ctx); err != nil {
		return unsent(err)
	}
	p := &publication{to: to, message: message, written: make(chan struct{})}
	c.take(p)
	defer c.forget(p)
	select {
	case c.requests <- p:
	case <-c.ctx.Done():
		return unsent(context.Cause(c.ctx))
	case <-ctx.Done():
		return unsent(c.contextError(ctx))
	}
	select {
	case <-p.written: // a write is bounded, and ends before the channel does
	case <-ctx.Done():
		return c.contextError(ctx)
	}
	if p.err != nil {
		return p.err
	}
	acked, err := p.confirmation.WaitContext(ctx)
	if err == nil {
		c.confirmed()
	}
	switch {
	case err != nil:
		c.closeUnresponsive()
		return c.contextError(ctx)
	case !acked && c.channel.IsClosed():
		<-c.ctx.Done() // the library's result for an unknown outcome
		return context.Cause(c.ctx)
	case !acked:
		return errRefused
	case c.wasReturned(p):
		return errUnroutable
	}
	return nil
}

// closeUnresponsive closes a channel that confirms nothing. Other messages that wait on it get an error, and their callers publish them
// again.
func (c *publishChannel) closeUnresponsive() {
	c.mu.Lock()
	silent := c.silent
	c.mu.Unlock()
	if reason, _ := c.session.blocked(); reason != "" || silent.IsZero() || time.Since(silent) < confirmTime {
		return
	}
	c.end(errNoConfirm)
	go func() { _ = c.session.withTimeout(callTime, c.channel.Close) }()
}

// awaitUnblocked delays messages while the broker accepts none. A message written meanwhile would be accepted after the alarm, and
// published twice if its caller has given up and retries.
func (c *publishChannel) awaitUnblocked(ctx context.Context) error {
	for {
		_, unblocked := c.session.blocked()
		if unblocked == nil {
			return nil
		}
		select {
		case <-unblocked:
		case <-c.ctx.Done():
			return context.Cause(c.ctx)
		case <-ctx.Done():
			return c.contextError(ctx)
		}
	}
}

// contextError returns the error of a caller whose context has ended.
func (c *publishChannel) contextError(ctx context.Context) error {
	if reason, _ := c.session.blocked(); reason != "" {
		return fmt.Errorf("rabbitmq accepts no messages (%s): %w", reason, context.Cause(ctx))
	}
	return fmt.Errorf("wait for the confirm: %w", context.Cause(ctx))
}

func (c *publishChannel) take(p *publication) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.inFlight[p.message.MessageId] = append(c.inFlight[p.message.MessageId], p)
	if c.silent.IsZero() {
		c.silent = time.Now()
	}
}

// confirmed records that the broker answers; messages may still be in flight.
func (c *publishChannel) confirmed() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.silent = time.Now()
}

func (c *publishChannel) forget(p *publication) {
	c.mu.Lock()
	defer c.mu.Unlock()
	id := p.message.MessageId
	left := slices.DeleteFunc(c.inFlight[id], func(other *publication) bool { return other == p })
	if len(left) > 0 {
		c.inFlight[id] = left
		return
	}
	delete(c.inFlight, id)
	if len(c.inFlight) == 0 {
		c.silent = time.Time{}
	}
}
