package rabbitmq

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"email-gateway/shared/crashpoint"
	"email-gateway/shared/email"
	"email-gateway/shared/service"
	"email-gateway/shared/telemetry"
	"email-gateway/worker/internal/queue"
)

const (
	// republishers is the number of concurrent republishes.
	republishers = 64
	// republishTime bounds one try to republish a task.
	republishTime = 5 * time.Second
)

// result is a delivery and its handler's result.
type result struct {
	delivery amqp.Delivery
	task     queue.Task
	err      error
}

// process runs the handler on a batch and acts on the results. It ends the deliveries first if Postgres cannot be used,
// or if tasks of a DLQ failed: those that it returns to the queue would be delivered to this consumer again
// immediately.
func (c *Consumer) process(t *channelTasks, batch []amqp.Delivery) {
	results := make([]result, len(batch))
	tasks := make([]queue.Task, len(batch))
	for i, d := range batch {
		tasks[i] = c.task(d)
		results[i] = result{delivery: d, task: tasks[i]}
	}
	answers := c.handle(tasks)
	away := c.config.Database.Ask(c.stopping) != nil
	var failed []result
	var done []amqp.Delivery
	for i := range results {
		results[i].err = errNoResult
		if i < len(answers) {
			results[i].err = answers[i]
		}
		if results[i].err != nil {
			failed = append(failed, results[i])
		} else {
			done = append(done, batch[i])
		}
	}
	if away || c.dlq && len(failed) > 0 {
		t.leave()
	}
	c.acknowledge(done)
	c.report(failed)
	if c.dlq {
		c.keep(failed, len(done) > 0)
		return
	}
	c.republishAll(t, failed)
}

var errNoResult = errors.New("the handler returned no result")

func (c *Consumer) task(d amqp.Delivery) queue.Task {
	retried := retries(d.Headers)
	trace, _ := d.Headers[headerTrace].(string)
	_, republished := d.Headers[headerReason] // route sets it in the new message
	return queue.Task{
		ID: d.MessageId, Queue: c.config.Queue, Payload: d.Body, Retried: retried, Traceparent: trace, Redelivered: d.Redelivered || republished,
		LastTry: !c.dlq && retried >= c.config.Topology.MaxRetries,
	}
}

// handle runs the handler. A panic fails the whole batch.
func (c *Consumer) handle(tasks []queue.Task) (answers []error) {
	ctx, cancel := context.WithCancel(c.stopping)
	defer cancel()
	if c.config.Database.Ask(ctx) != nil {
		return unavailable(tasks)
	}
	defer func() {
		p := recover()
		if p == nil {
			return
		}
		text := email.MaskText(fmt.Sprintf("handler panicked: %v", p))
		c.log.Error("tasks panicked", telemetry.OutboxID, telemetry.IDs(len(tasks), func(i int) string { return tasks[i].ID }),
			"error", text, "stack", string(debug.Stack()))
		answers = make([]error, len(tasks))
		for i := range answers {
			answers[i] = &queue.RetryLater{Reason: text}
		}
	}()
	return c.config.Handler(ctx, tasks)
}

// report logs the internal errors of a batch in one line, because they usually have one cause. The handler logs delays and
// permanent failures.
func (c *Consumer) report(failed []result) {
	var faults []result
	for _, v := range failed {
		var (
			later *queue.RetryLater
			dead  *queue.Dead
		)
		cutOff := c.stopping.Err() != nil && errors.Is(v.err, context.Canceled) // by the stop
		if !cutOff && !errors.As(v.err, &later) && !errors.As(v.err, &dead) {
			faults = append(faults, v)
		}
	}
	if len(faults) > 0 {
		c.log.Error("tasks failed", "count", len(faults),
			telemetry.OutboxID, telemetry.IDs(len(faults), func(i int) string { return faults[i].task.ID }), "error", email.MaskText(faults[0].err.Error()))
	}
}

// acknowledge acknowledges tasks. If their connection has ended, the broker redelivers them.
func (c *Consumer) acknowledge(done []amqp.Delivery) {
	for i, d := range done {
		if err := d.Ack(false); err != nil {
			c.log.Warn("tasks done but not acknowledged: they will be delivered again", "count", len(done)-i, "error", err)
			return
		}
	}
}

// tryRepublish publishes tasks to their next queues and acknowledges them on this one, until ctx or the deadline ends, each at
// least once. It returns the tasks that are left, and an error of the last tries.
func (c *Consumer) tryRepublish(ctx context.Context, failed []result, deadline time.Time, logOnce *sync.Once) (rest []result, err error) {
	errs := make([]error, len(failed))
	var next atomic.Int64
	var working sync.WaitGroup
	for range min(republishers, len(failed)) {
		working.Go(func() {
			for i := int(next.Add(1)) - 1; i < len(failed); i = int(next.Add(1)) - 1 {
				to, message := route(c.config.Topology, failed[i])
				errs[i] = c.republish(ctx, deadline, to, message, logOnce)
			}
		})
	}
	working.Wait()
	var done []amqp.Delivery
	for i, failure := range errs {
		if failure == nil {
			done = append(done, failed[i].delivery)
		} else {
			rest, err = append(rest, failed[i]), failure
		}
	}
	if len(done) > 0 {
		crashpoint.At(crashpoint.PassConfirmed)
	}
	c.acknowledge(done)
	return rest, err
}

// republish retries until the broker has confirmed the message. It gives up after the deadline, and when the channel of
// the delivery has ended or the consumer stops: the task then returns to the queue. A task that is returned earlier
// would be redelivered immediately, before all others, and count for the delivery limit, which is for tasks that kill
// their consumers.
func (c *Consumer) republish(ctx context.Context, deadline time.Time, to Queue, message amqp.Publishing, logOnce *sync.Once) error {
	for wait := firstWait; ; wait = min(2*wait, lastWait) {
		sending, cancel := context.WithTimeout(context.Background(), republishTime)
		err := c.sender.send(sending, to, message)
		cancel()
		if err == nil {
			return nil
		}
		logOnce.Do(func() {
			c.log.Error("cannot republish tasks, retrying", telemetry.OutboxID, message.MessageId, "error", err)
		})
		if time.Now().After(deadline) || service.Pause(ctx, wait) != nil {
			return err
		}
	}
}

// keep requeues tasks on the DLQ. It does not hold them during the wait, because the queue metrics do not count tasks that a
// consumer holds.
func (c *Consumer) keep(failed []result, success bool) {
	if success {
		c.reset()
	}
	for i, v := range failed {
		if err := v.delivery.Nack(false, true); err != nil {
			c.log.Warn("cannot requeue tasks: they will be redelivered", "count", len(failed)-i, "error", err)
			return
		}
	}
}

// pause waits, and returns false if the connection ends or the consumer stops meanwhile.
func (c *Consumer) pause(s *session, d time.Duration) bool {
	ctx, cancel := context.WithCancel(c.stopping)
	defer cancel()
	defer context.AfterFunc(s.ctx, cancel)()
	return service.Pause(ctx, d) == nil
}
