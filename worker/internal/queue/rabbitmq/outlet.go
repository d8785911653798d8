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
	errUnroutable = errors.New("no queue is bound there")
	errRefused    = errors.New("rabbitmq refused the message")
	errNoConfirm  = errors.New("rabbitmq confirms nothing")
)

// confirmTime is how long a channel may confirm nothing of what was written before it is
// ended. A channel that was opened while a queue had no leader may confirm nothing for as
// long as it lives, though its connection answers; the next one finds the new leader. A
// broker whose memory is full says so sooner.
const confirmTime = 4 * time.Second

// outlet is one channel to publish on. Messages of many goroutines travel on it at the
// same time, and each waits for its own confirm.
type outlet struct {
	session *session
	channel *amqp.Channel

	ctx context.Context // ends with the channel; its cause says why
	end context.CancelCauseFunc

	requests chan *publication
	settled  chan chan struct{} // see wasReturned
	sorted   chan struct{}      // closed after the last return was marked

	mu     sync.Mutex
	flying map[string][]*publication // by message id
	silent time.Time                 // when the first message was written since the last confirm, or since none was in flight
}

// publication is one message on its way.
type publication struct {
	to      Queue
	message amqp.Publishing

	written      chan struct{} // closed when the next two are set
	confirmation *amqp.DeferredConfirmation
	err          error

	returned bool // the broker sent it back; the outlet's mu guards it
}

// newOutlet opens a channel on the session.
func newOutlet(s *session) (*outlet, error) {
	channel, err := s.conn.Channel()
	if err != nil {
		return nil, fmt.Errorf("open channel: %w", err)
	}
	o := &outlet{
		session: s, channel: channel,
		requests: make(chan *publication), settled: make(chan chan struct{}), sorted: make(chan struct{}),
		flying: make(map[string][]*publication),
	}
	o.ctx, o.end = context.WithCancelCause(context.Background())
	closes := channel.NotifyClose(make(chan *amqp.Error, 1))
	// Without a buffer: when the library goes on to the confirm, the return was taken.
	returns := channel.NotifyReturn(make(chan amqp.Return))
	if err := channel.Confirm(false); err != nil {
		o.end(errClosed)
		return nil, fmt.Errorf("ask for confirms: %w", err)
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

func (o *outlet) alive() bool { return o.ctx.Err() == nil }

// write hands the messages to the library one after the other: a socket that takes none
// holds up this goroutine, and none of those that publish.
func (o *outlet) write() {
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

// sortReturns marks the messages that come back, until the channel has ended.
func (o *outlet) sortReturns(returns <-chan amqp.Return) {
	defer close(o.sorted)
	for {
		select {
		case r, open := <-returns:
			if !open {
				return
			}
			o.mu.Lock()
			for _, p := range o.flying[r.MessageId] {
				p.returned = true
			}
			o.mu.Unlock()
		case done := <-o.settled:
			close(done)
		}
	}
}

// wasReturned is asked after a confirm, which comes for a message that no queue took
// too: it follows the return. The return was taken before the confirm was, so that once
// sortReturns takes something else, it has marked the message.
func (o *outlet) wasReturned(p *publication) bool {
	done := make(chan struct{})
	select {
	case o.settled <- done:
		<-done
	case <-o.sorted:
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	return p.returned
}

// publish returns nil when the broker has taken the message to a queue and to its disk.
// After an error it may stand there all the same, unless it is queue.ErrNotPublished.
func (o *outlet) publish(ctx context.Context, to Queue, message amqp.Publishing) error {
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
		o.mu.Lock()
		o.silent = time.Time{}
		o.mu.Unlock()
	}
	switch {
	case err != nil:
		o.giveUp()
		return o.lateness(ctx)
	case !acked && o.channel.IsClosed():
		<-o.ctx.Done() // the library's word for "nobody knows"
		return context.Cause(o.ctx)
	case !acked:
		return errRefused
	case o.wasReturned(p):
		return errUnroutable
	}
	return nil
}

// giveUp ends a channel that confirms nothing. What else waits on it gets an error and is
// published again.
func (o *outlet) giveUp() {
	o.mu.Lock()
	silent := o.silent
	o.mu.Unlock()
	if reason, _ := o.session.blocked(); reason != "" || silent.IsZero() || time.Since(silent) < confirmTime {
		return
	}
	o.end(errNoConfirm)
	go func() { _ = o.session.within(callTime, o.channel.Close) }()
}

// awaitLifted keeps messages back while the broker takes none. What is written all the
// same is taken when the alarm is over, and once more when whoever gave up repeats it.
func (o *outlet) awaitLifted(ctx context.Context) error {
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

// lateness is the error of someone who waits no longer.
func (o *outlet) lateness(ctx context.Context) error {
	if reason, _ := o.session.blocked(); reason != "" {
		return fmt.Errorf("rabbitmq takes no messages (%s): %w", reason, context.Cause(ctx))
	}
	return fmt.Errorf("wait for the confirm: %w", context.Cause(ctx))
}

func (o *outlet) take(p *publication) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.flying[p.message.MessageId] = append(o.flying[p.message.MessageId], p)
	if o.silent.IsZero() {
		o.silent = time.Now()
	}
}

func (o *outlet) forget(p *publication) {
	o.mu.Lock()
	defer o.mu.Unlock()
	id := p.message.MessageId
	left := slices.DeleteFunc(o.flying[id], func(other *publication) bool { return other == p })
	if len(left) > 0 {
		o.flying[id] = left
		return
	}
	delete(o.flying, id)
	if len(o.flying) == 0 {
		o.silent = time.Time{} // a late confirm of this message is not seen
	}
}
