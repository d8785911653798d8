// Package queue defines the contract between the programs (dispatcher, pipeline, mailing, recipient) and a queue broker. There
// are two adapters: asynqueue carries emails and passes the suite in package queuetest; rabbitmq carries bulk jobs and has no
// task ids, so a task may be queued twice. A queue is only transport: Postgres has the state, and a task may be delivered twice
// or, if a broker loses its data, not at all.
package queue

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// Task is one unit of work on a queue.
type Task struct {
	ID      string // the outbox id: a queue holds at most one task per id
	Queue   string
	Payload []byte
	// Traceparent is the W3C traceparent of the span that published the task; "" = none. It is sent
	// in the broker's headers, not in the payload.
	Traceparent string
	// Retried is how often the broker delivered the task before. Postgres counts the tries of an email; on a broker that counts
	// tries itself (rabbitmq) Retried is that count.
	Retried int
	// Redelivered: the task was delivered before and not acknowledged, because its worker died or lost its connection, or
	// requested a retry. The work of that delivery may still be running. Only rabbitmq sets it.
	Redelivered bool
	// Admitted is when the send rate admitted the task, for one recipient, before it was taken;
	// zero if the consumer admits tasks regardless of the rate.
	Admitted time.Time
	// LastTry is set by a broker that counts tries, for the last one: RetryLater and errors then end the task like Dead.
	LastTry bool
}

// Placed is the result of a publish.
type Placed int

const (
	// Queued: the task is ready on the queue.
	Queued Placed = iota
	// AlreadyQueued: a task of this id was ready on the queue already and is unchanged.
	AlreadyQueued
	// Busy: a worker is processing a task of this id. Publish again later.
	Busy
	// Replaced: the task is ready, in place of one of the same id that was delayed or that no
	// worker would have taken.
	Replaced
)

// Found is the result of a search for an email's task.
type Found int

const (
	// Kept: a worker has the task or will receive it.
	Kept Found = iota
	// Leftover: no worker would have received the task, since its worker has died. It was removed.
	Leftover
	// Missing: there is no task of this id.
	Missing
)

// Room is the depth of a queue, and the room that the caller may fill.
type Room struct {
	// Depth is the number of tasks: ready, active, scheduled or waiting for a retry.
	Depth int
	// Granted is the number of tasks that the caller may publish.
	Granted int
}

// ErrNotPublished is wrapped by an error of Publisher.Publish if nothing was sent to the broker, so that the task is certainly
// not on its queue. Not every publisher can determine that.
var ErrNotPublished = errors.New("not published")

// Publisher puts tasks on queues.
type Publisher interface {
	// Publish puts the task on its queue unless it is there already. A task of the same id that is delayed, or that no worker
	// would take (archived, completed), is replaced. After an error the task may or may not be queued, unless the error wraps
	// ErrNotPublished.
	Publish(ctx context.Context, task Task) (Placed, error)
	// Reserve grants the publisher its share of the free room in a window that all publishers share,
	// at most limit tasks. A grant replaces the publisher's last one for the queue and lasts until
	// Release, or for 5 s.
	Reserve(ctx context.Context, queue string, window, limit int) (Room, error)
	// Release ends the publisher's grant for the queue. Published tasks are part of the depth.
	Release(ctx context.Context, queue string) error
}

// Handler processes one task. nil acknowledges it, *RetryLater requests a later retry, and *Dead ends it as failed; any other
// error is an internal error, and the broker retries the task.
//
// ctx has no deadline of the broker: a handler bounds its own steps. ctx ends when the consumer stops: the handler then
// finishes the work that it has begun, and starts nothing that must not be interrupted.
type Handler func(ctx context.Context, task Task) error

// BatchHandler processes several tasks of one queue together, with the same context as a Handler. It returns one result per
// task, in the same order, with the meaning of a Handler's result; a missing result counts as an error.
type BatchHandler func(ctx context.Context, tasks []Task) []error

// RetryLater requests the same task again after Delay.
type RetryLater struct {
	// Delay is ignored by a broker with fixed delays (rabbitmq).
	Delay  time.Duration
	Reason string // shown to operators: masked
	// Uncounted means that the try does not count on a broker that counts tries: the task did not fail, but waited for
	// something else.
	Uncounted bool
}

func (r *RetryLater) Error() string {
	return fmt.Sprintf("retry in %s: %s", r.Delay.Round(time.Millisecond), r.Reason)
}

// Dead means that the task has failed permanently. Postgres records the failure; the broker may keep the task for operators.
type Dead struct {
	Reason string // shown to operators: masked
}

func (d *Dead) Error() string { return "failed permanently: " + d.Reason }
