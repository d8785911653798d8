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
	// republishers pass tasks on at the same time.
	republishers = 64
	// republishTime bounds one try to pass a task on.
	republishTime = 5 * time.Second
)

// verdict is a delivery and what its handler said.
type verdict struct {
	delivery amqp.Delivery
	task     queue.Task
	err      error
}

// settle lets the handler work on a batch and does what it says.
func (c *Consumer) settle(s *session, batch []amqp.Delivery) {
	verdicts := make([]verdict, len(batch))
	tasks := make([]queue.Task, len(batch))
	for i, d := range batch {
		tasks[i] = c.task(d)
		verdicts[i] = verdict{delivery: d, task: tasks[i]}
	}
	answers := c.handle(tasks)
	var undone []verdict
	var done []amqp.Delivery
	for i := range verdicts {
		verdicts[i].err = errNoVerdict
		if i < len(answers) {
			verdicts[i].err = answers[i]
		}
		if verdicts[i].err != nil {
			undone = append(undone, verdicts[i])
		} else {
			done = append(done, batch[i])
		}
	}
	c.acknowledge(done)
	c.report(undone)
	if c.dlq {
		c.keep(s, undone, len(done) > 0)
		return
	}
	c.passOn(s, undone)
}

var errNoVerdict = errors.New("the handler gave no verdict")

func (c *Consumer) task(d amqp.Delivery) queue.Task {
	retried := retries(d.Headers)
	trace, _ := d.Headers[headerTrace].(string)
	return queue.Task{
		ID: d.MessageId, Queue: c.config.Queue, Payload: d.Body, Retried: retried, Traceparent: trace,
		LastTry: !c.dlq && retried >= c.config.Topology.MaxRetries,
	}
}

// handle runs the handler. A panic is the fault of the whole batch.
func (c *Consumer) handle(tasks []queue.Task) (answers []error) {
	ctx, cancel := context.WithCancel(c.stopping)
	defer cancel()
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

// report logs a batch's faults, in one line: they mostly have one cause. Delays and
// deaths are the handler's own doing, and logged there.
func (c *Consumer) report(undone []verdict) {
	var faults []verdict
	for _, v := range undone {
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

// acknowledge ends tasks. When their connection has ended meanwhile they come again.
func (c *Consumer) acknowledge(done []amqp.Delivery) {
	for i, d := range done {
		if err := d.Ack(false); err != nil {
			c.log.Warn("tasks done but not acknowledged: they will come again", "count", len(done)-i, "error", err)
			return
		}
	}
}

// passOn publishes tasks to the queues where they go next and ends them here.
func (c *Consumer) passOn(s *session, undone []verdict) {
	passed := make([]bool, len(undone))
	var next atomic.Int64
	var working sync.WaitGroup
	var tell sync.Once
	for range min(republishers, len(undone)) {
		working.Go(func() {
			for i := int(next.Add(1)) - 1; i < len(undone); i = int(next.Add(1)) - 1 {
				to, message := route(c.config.Topology, undone[i])
				passed[i] = c.republish(s, to, message, &tell)
			}
		})
	}
	working.Wait()
	var done []amqp.Delivery
	for i, ok := range passed {
		if ok {
			done = append(done, undone[i].delivery)
		}
	}
	if len(done) > 0 {
		crashpoint.At(crashpoint.PassConfirmed)
	}
	c.acknowledge(done)
}

// republish tries until the broker has confirmed. It gives up when the task is no longer
// ours, because its connection ended, or when the consumer stops: then it goes back to
// the queue. It is not given back earlier: it would come again at once, and the delivery
// limit is for tasks that kill their consumers.
func (c *Consumer) republish(s *session, to Queue, message amqp.Publishing, tell *sync.Once) bool {
	for wait := firstWait; ; wait = min(2*wait, lastWait) {
		ctx, cancel := context.WithTimeout(context.Background(), republishTime)
		err := c.sender.send(ctx, to, message)
		cancel()
		if err == nil {
			return true
		}
		tell.Do(func() {
			c.log.Error("tasks cannot be passed on; trying on", telemetry.OutboxID, message.MessageId, "error", err)
		})
		if !c.pause(s, wait) {
			return false
		}
	}
}

// keep leaves tasks on the queue on which they stand, after a wait.
func (c *Consumer) keep(s *session, undone []verdict, success bool) {
	if success {
		c.reset()
	}
	if len(undone) == 0 || !c.pause(s, c.lengthen()) {
		return
	}
	for i, v := range undone {
		if err := v.delivery.Nack(false, true); err != nil {
			c.log.Warn("tasks not given back: they will come again", "count", len(undone)-i, "error", err)
			return
		}
	}
}

// pause returns false when the wait is futile: the connection has ended, or the consumer
// is told to stop.
func (c *Consumer) pause(s *session, d time.Duration) bool {
	ctx, cancel := context.WithCancel(c.stopping)
	defer cancel()
	defer context.AfterFunc(s.ctx, cancel)()
	return service.Pause(ctx, d) == nil
}
