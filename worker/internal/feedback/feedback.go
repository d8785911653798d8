// Package feedback reads SES events from a queue and records them. The api records the events that it receives from
// SNS. The worker's main package runs the Reader.
//
// A message is deleted only after the commit that records its event. After a crash in between the queue delivers it
// again, which changes nothing. A message that cannot be recorded stays in the queue and becomes visible again after
// the queue's visibility timeout; the queue's redrive policy decides how often.
package feedback

import (
	"context"
	"time"
)

// Message is one message of the queue.
type Message struct {
	ID      string
	Receipt string // for Delete
	Body    string
	// Receives is how often the queue has delivered the message, this time included.
	Receives int
}

// MaxMessages is the number of messages that one call receives or deletes, at most: the maximum of SQS.
const MaxMessages = 10

// Queue is the queue of events. worker/internal/queue/sqsqueue implements it.
type Queue interface {
	// Receive waits for messages, at most for wait, and returns at most MaxMessages.
	Receive(ctx context.Context, wait time.Duration) ([]Message, error)
	// Delete deletes received messages, at most MaxMessages.
	Delete(ctx context.Context, messages []Message) error
}
