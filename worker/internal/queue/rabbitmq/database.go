package rabbitmq

import (
	"context"

	amqp "github.com/rabbitmq/amqp091-go"

	"email-gateway/worker/internal/queue"
)

// available is the Database of a consumer that takes tasks in any case.
type available struct{}

func (available) Ask(context.Context) error   { return nil }
func (available) Await(context.Context) error { return nil }

// awaitDatabase waits until Postgres can be used. It returns false if the connection ends or the consumer stops before. The wait
// counts as consuming: otherwise an outage of Postgres would be reported as one of RabbitMQ too.
func (c *Consumer) awaitDatabase(s *session) bool {
	if c.config.Database.Ask(c.stopping) != nil {
		c.working.Store(true)
	}
	ctx, cancel := context.WithCancel(c.stopping)
	defer cancel()
	defer context.AfterFunc(s.ctx, cancel)()
	return c.config.Database.Await(ctx) == nil
}

// leave ends the deliveries to this consumer. Batches that it has already are completed. Closing the channel would return them
// to the queue, and count for the delivery limit. While Postgres cannot be used, they are moved on without their handler: see
// unavailable.
func (c *Consumer) leave(s *session, channel *amqp.Channel, batches *batcher) {
	batches.cancelled.Store(true)
	_ = s.withTimeout(callTime, func() error { return channel.Cancel(consumerTag, false) })
}

// unavailable returns the results of a batch that is not passed to the handler.
func unavailable(tasks []queue.Task) []error {
	answers := make([]error, len(tasks))
	for i := range answers {
		answers[i] = &queue.RetryLater{Reason: "database unavailable", Uncounted: true}
	}
	return answers
}
