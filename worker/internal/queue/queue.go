// Package queue is the seam between the engine (dispatcher, pipeline, mailing, recipient)
// and a queue broker. Two adapters hang from it: asynqueue carries emails and passes the
// suite in package queuetest; rabbitmq carries bulk work, and has no ids, so that a task
// may stand on a queue twice. A queue only carries: what is true stands in Postgres, and every part
// of this contract may happen twice or, when a broker loses its data, not at all.
package queue

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// Task is one piece of work on a queue.
type Task struct {
	ID      string // the outbox id: a queue holds at most one task per id
	Queue   string
	Payload []byte
	// Traceparent names the span that the task came from, in W3C's form; "" = none. It
	// stands beside the payload, in the broker's own headers.
	Traceparent string
	// Retried counts how often the broker delivered it before. The count of an email's
	// tries stands in Postgres; on a broker that counts by itself (rabbitmq) it is what
	// decides.
	Retried int
	// Admitted is when the send rate let the task through, for one recipient, before it was taken;
	// zero if the consumer admits tasks without regard to the rate.
	Admitted time.Time
	// LastTry is set by a broker that counts by itself: RetryLater and errors end this
	// task, as Dead would.
	LastTry bool
}

// Placed is what became of a task that was to be put on a queue.
type Placed int

const (
	// Queued: it stands on the queue, ready to be taken.
	Queued Placed = iota
	// Standing: so it did before, as far as the queue can tell, and was left alone.
	Standing
	// Busy: a worker has a task of this id in its hands right now. Come back later.
	Busy
	// Replaced: it is ready to be taken, in place of one of the same id that waited for its
	// time or that no worker would have taken.
	Replaced
)

// Found is how a search for an email's task ended.
type Found int

const (
	// Kept: a worker has the task, or will be given it.
	Kept Found = iota
	// Leftover: no worker would have been given it, since the one that had it is gone. It
	// was removed.
	Leftover
	// Missing: there is no task of this id.
	Missing
)

// Room is how full a queue is, and how much of it is reserved.
type Room struct {
	// Depth is how many tasks are ready, in work, or waiting for their time.
	Depth int
	// Granted is how many more the caller may publish.
	Granted int
}

// ErrNotPublished is in the errors of Publisher.Publish after which the task is certainly not on
// its queue, if the publisher can tell: nothing was sent to the broker.
var ErrNotPublished = errors.New("not published")

// Publisher puts tasks on queues.
type Publisher interface {
	// Publish makes sure that the task stands on its queue. A leftover of the same
	// id that nobody would ever take (waiting for its retry, archived, completed) is
	// replaced. An error means that it may or may not stand there, unless it is
	// ErrNotPublished.
	Publish(ctx context.Context, task Task) (Placed, error)
	// Reserve grants room for at most most tasks on a queue that is to hold at most window,
	// among all publishers: the publisher's share of what is free. A grant replaces the
	// publisher's last one for the queue and lasts until Release, or for 5 s.
	Reserve(ctx context.Context, queue string, window, most int) (Room, error)
	// Release ends the publisher's grant for the queue: what was published counts by itself.
	Release(ctx context.Context, queue string) error
}

// Handler works on one task. nil acknowledges it, *RetryLater and *Dead tell what
// else to do; any other error is a fault of ours and is retried by the broker.
//
// ctx carries no deadline of the broker's: a handler bounds its own steps. It ends
// when the consumer is told to stop: what has begun is then finished, and nothing is
// begun that could not be left.
type Handler func(ctx context.Context, task Task) error

// BatchHandler works on several tasks of one queue together, with the same context as
// a Handler. It returns one verdict per task, in their order, each to be read as a
// Handler's answer; a verdict that is missing is an error.
type BatchHandler func(ctx context.Context, tasks []Task) []error

// RetryLater asks for the same task again after Delay.
type RetryLater struct {
	// Delay is a wish: a broker whose waits are fixed (rabbitmq) keeps its own.
	Delay  time.Duration
	Reason string // shown to operators: masked
	// Uncounted leaves the tries that a counting broker grants as they are: the task
	// waited for somebody else, and did not fail.
	Uncounted bool
}

func (r *RetryLater) Error() string {
	return fmt.Sprintf("again in %s: %s", r.Delay.Round(time.Millisecond), r.Reason)
}

// Dead says that the task gave up for good. The record stands in Postgres; the
// broker may keep the task for operators to look at.
type Dead struct {
	Reason string // shown to operators: masked
}

func (d *Dead) Error() string { return "gave up: " + d.Reason }
