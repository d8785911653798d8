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

// confirmTime is how long a channel waits for the confirm of a message before it closes. A channel that was opened while a queue
// had no leader may never confirm, although its connection responds; a new channel finds the new leader. A broker whose memory
// is full reports that earlier.
const confirmTime = 4 * time.Second

// publishChannel is one channel for publishing. Many goroutines publish on it concurrently, and
// each waits for its own confirm. It closes if a message stays unconfirmed for confirmTime.
type publishChannel struct {
	session *session
	channel *amqp.Channel

	ctx context.Context // ends with the channel; the cause is the error
	end context.CancelCauseFunc

	requests chan *publication
	marked   chan chan struct{} // see wasReturned
	sorted   chan struct{}      // closed after the last return was marked

	mu       sync.Mutex
	inFlight map[string][]*publication // unconfirmed, by message id
}

// publication is one message. It is in flight until the broker has confirmed it or the channel has ended, even if its caller
// stops waiting earlier.
type publication struct {
	to      Queue
	message amqp.Publishing

	done chan struct{} // closed when err is set
	err  error

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
	context.AfterFunc(c.ctx, func() { _ = s.withTimeout(callTime, channel.Close) })
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
			c.add(p)
			confirmation, err := c.channel.PublishWithDeferredConfirm(p.to.Exchange, p.to.Key, true, false, p.message)
			go func() {
				if err == nil {
					err = c.awaitConfirm(p, confirmation)
				}
				c.remove(p)
				p.err = err
				close(p.done)
			}()
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
	p := &publication{to: to, message: message, done: make(chan struct{})}
	select {
	case c.requests <- p:
	case <-c.ctx.Done():
		return unsent(context.Cause(c.ctx))
	case <-ctx.Done():
		return unsent(c.contextError(ctx))
	}
	select {
	case <-p.done:
		return p.err
	case <-ctx.Done():
		return c.contextError(ctx)
	}
}

// awaitConfirm waits until the broker has confirmed the message, and returns its result. Without a confirm within confirmTime it
// ends the channel: the callers of other messages on it get an error, and publish them again.
func (c *publishChannel) awaitConfirm(p *publication, confirmation *amqp.DeferredConfirmation) error {
	if !c.confirmed(confirmation) {
		c.end(errNoConfirm)
	}
	if confirmation.Acked() {
		if c.wasReturned(p) {
			return errUnroutable
		}
		return nil
	}
	if c.channel.IsClosed() {
		<-c.ctx.Done() // the library's result for an unknown outcome
	}
	if !c.alive() {
		return context.Cause(c.ctx)
	}
	return errRefused
}

// confirmed waits for the confirm or the end of the channel, and returns false if neither comes within confirmTime. While the
// broker accepts no messages, and for confirmTime afterwards, it continues to wait.
func (c *publishChannel) confirmed(confirmation *amqp.DeferredConfirmation) bool {
	timeout := time.NewTimer(confirmTime)
	defer timeout.Stop()
	for {
		var unblocked <-chan struct{}
		select {
		case <-confirmation.Done():
			return true
		case <-c.ctx.Done():
			return true
		case <-timeout.C:
			if _, unblocked = c.session.blocked(); unblocked == nil {
				return false
			}
		}
		select {
		case <-unblocked:
			timeout.Reset(confirmTime)
		case <-confirmation.Done():
		case <-c.ctx.Done():
		}
	}
}

// awaitUnblocked delays messages while the broker accepts none. A message written meanwhile would be accepted after the
// alarm, and published twice if its caller has given up and retries.
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

func (c *publishChannel) add(p *publication) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.inFlight[p.message.MessageId] = append(c.inFlight[p.message.MessageId], p)
}

func (c *publishChannel) remove(p *publication) {
	c.mu.Lock()
	defer c.mu.Unlock()
	id := p.message.MessageId
	c.inFlight[id] = slices.DeleteFunc(c.inFlight[id], func(other *publication) bool { return other == p })
	if len(c.inFlight[id]) == 0 {
		delete(c.inFlight, id)
	}
}
