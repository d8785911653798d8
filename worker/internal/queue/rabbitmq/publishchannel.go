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
	o := &publishChannel{
		session: s, channel: channel,
		requests: make(chan *publication), marked: make(chan chan struct{}), sorted: make(chan struct{}),
		inFlight: make(map[string][]*publication),
	}
	o.ctx, o.end = context.WithCancelCause(context.Background())
	closes := channel.NotifyClose(make(chan *amqp.Error, 1))
	// Unbuffered: when the library processes the confirm, the return has been received.
	returns := channel.NotifyReturn(make(chan amqp.Return))
	if err := channel.Confirm(false); err != nil {
		o.end(errClosed)
		return nil, fmt.Errorf("enable publisher confirms: %w", err)
	}
	go o.write()
	go o.sortReturns(returns)
	go func() {
		if err := <-closes; err != nil {
			o.end(fmt.Errorf("%w: %w", errClosed, err))
		}
		o.end(errClosed)
	}()
	return o, nil
}

func (o *publishChannel) alive() bool { return o.ctx.Err() == nil }

// write passes the messages to the library one after the other: a blocked socket blocks this goroutine, but no publisher.
func (o *publishChannel) write() {
	for {
		select {
		case p := <-o.requests:
			p.confirmation, p.err = o.channel.PublishWithDeferredConfirm(p.to.Exchange, p.to.Key, true, false, p.message)
			close(p.written)
		case <-o.ctx.Done():
			return
		}
	}
}

// sortReturns marks the returned messages until the channel has ended.
func (o *publishChannel) sortReturns(returns <-chan amqp.Return) {
	defer close(o.sorted)
	for {
		select {
		case r, open := <-returns:
			if !open {
				return
			}
			o.mu.Lock()
			for _, p := range o.inFlight[r.MessageId] {
				p.returned = true
			}
			o.mu.Unlock()
		case done := <-o.marked:
			close(done)
		}
	}
}

// wasReturned reports, after a confirm, whether the message was returned: the broker returns an unroutable message and then
// confirms it. The return is received before the confirm, so sortReturns has marked the message when it receives from marked.
func (o *publishChannel) wasReturned(p *publication) bool {
	done := make(chan struct{})
	select {
	case o.marked <- done:
		<-done
	case <-o.sorted:
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	return p.returned
}

// publish returns nil when the broker has stored the message on a queue. After an error the message may be stored too, unless
// the error wraps queue.ErrNotPublished.
func (o *publishChannel) publish(ctx context.Context, to Queue, message amqp.Publishing) error {
	if ctx.Err() != nil {
		return unsent(o.lateness(ctx))
	}
	if err := o.awaitLifted(ctx); err != nil {
		return unsent(err)
	}
	p := &publication{to: to, message: message, written: make(chan struct{})}
	o.take(p)
	defer o.forget(p)
	select {
	case o.requests <- p:
	case <-o.ctx.Done():
		return unsent(context.Cause(o.ctx))
	case <-ctx.Done():
		return unsent(o.lateness(ctx))
	}
	select {
	case <-p.written: // a write is bounded, and ends before the channel does
	case <-ctx.Done():
		return o.lateness(ctx)
	}
	if p.err != nil {
		return p.err
	}
	acked, err := p.confirmation.WaitContext(ctx)
	if err == nil {
		o.confirmed()
	}
	switch {
	case err != nil:
		o.giveUp()
		return o.lateness(ctx)
	case !acked && o.channel.IsClosed():
		<-o.ctx.Done() // the library's result for an unknown outcome
		return context.Cause(o.ctx)
	case !acked:
		return errRefused
	case o.wasReturned(p):
		return errUnroutable
	}
	return nil
}

// giveUp closes a channel that confirms nothing. Other messages that wait on it get an error, and their callers publish them
// again.
func (o *publishChannel) giveUp() {
	o.mu.Lock()
	silent := o.silent
	o.mu.Unlock()
	if reason, _ := o.session.blocked(); reason != "" || silent.IsZero() || time.Since(silent) < confirmTime {
		return
	}
	o.end(errNoConfirm)
	go func() { _ = o.session.withTimeout(callTime, o.channel.Close) }()
}

// awaitLifted delays messages while the broker accepts none. A message written meanwhile would be accepted after the alarm, and
// published twice if its caller has given up and retries.
func (o *publishChannel) awaitLifted(ctx context.Context) error {
	for {
		_, lifted := o.session.blocked()
		if lifted == nil {
			return nil
		}
		select {
		case <-lifted:
		case <-o.ctx.Done():
			return context.Cause(o.ctx)
		case <-ctx.Done():
			return o.lateness(ctx)
		}
	}
}

// lateness returns the error of a caller whose context has ended.
func (o *publishChannel) lateness(ctx context.Context) error {
	if reason, _ := o.session.blocked(); reason != "" {
		return fmt.Errorf("rabbitmq accepts no messages (%s): %w", reason, context.Cause(ctx))
	}
	return fmt.Errorf("wait for the confirm: %w", context.Cause(ctx))
}

func (o *publishChannel) take(p *publication) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.inFlight[p.message.MessageId] = append(o.inFlight[p.message.MessageId], p)
	if o.silent.IsZero() {
		o.silent = time.Now()
	}
}

// confirmed records that the broker answers; messages may still be in flight.
func (o *publishChannel) confirmed() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.silent = time.Now()
}

func (o *publishChannel) forget(p *publication) {
	o.mu.Lock()
	defer o.mu.Unlock()
	id := p.message.MessageId
	left := slices.DeleteFunc(o.inFlight[id], func(other *publication) bool { return other == p })
	if len(left) > 0 {
		o.inFlight[id] = left
		return
	}
	delete(o.inFlight, id)
	if len(o.inFlight) == 0 {
		o.silent = time.Time{}
	}
}
