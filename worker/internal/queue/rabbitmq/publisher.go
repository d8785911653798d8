package rabbitmq

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"email-gateway/worker/internal/queue"
)

// Headers of a task's message.
const (
	headerRetries = "x-retries"      // how often it came again
	headerReason  = "x-retry-reason" // why the last time
	headerTrace   = "traceparent"    // the span it came from, if any
)

// PublisherConfig makes a Publisher.
type PublisherConfig struct {
	Log        *slog.Logger
	Conn       Conn
	Topologies []Topology
}

// Publisher puts tasks on the main queues of its pipelines. It implements
// queue.Publisher, with one difference: RabbitMQ knows no ids, so that a task which is
// published again stands on its queue twice, and no task is ever Busy.
type Publisher struct {
	sender    *sender
	inspector *Inspector
	depths    map[string]*depth
	targets   map[string]Queue
}

// NewPublisher makes a Publisher with connections of its own. It does not connect yet:
// RabbitMQ may come up later.
func NewPublisher(c PublisherConfig) *Publisher {
	p := &Publisher{
		sender:    newSender(newLink(c.Log, c.Conn, "publisher", c.Topologies...)),
		inspector: NewInspector(c.Log, c.Conn, c.Topologies...),
		depths:    make(map[string]*depth),
		targets:   make(map[string]Queue),
	}
	for _, t := range c.Topologies {
		p.targets[t.Main.Name] = t.Main
		p.depths[t.Main.Name] = &depth{}
	}
	return p
}

// Publish implements queue.Publisher. It returns when the broker has the task on disk,
// or when ctx ends.
func (p *Publisher) Publish(ctx context.Context, task queue.Task) (queue.Placed, error) {
	to, known := p.targets[task.Queue]
	if !known {
		return queue.Queued, fmt.Errorf("publish task: queue %q is none of ours", task.Queue)
	}
	headers := amqp.Table{headerRetries: int32(0)}
	if task.Traceparent != "" {
		headers[headerTrace] = task.Traceparent
	}
	err := p.sender.send(ctx, to, amqp.Publishing{
		MessageId:    task.ID,
		ContentType:  "application/json",
		DeliveryMode: amqp.Persistent,
		Timestamp:    time.Now(),
		Headers:      headers,
		Body:         task.Payload,
	})
	if err != nil {
		return queue.Queued, err
	}
	p.depths[task.Queue].added()
	return queue.Queued, nil
}

// Reserve implements queue.Publisher, except that tasks in work are not counted and that each
// publisher has the window to itself. The depth is measured at most every 100 ms; what was
// published since is added.
func (p *Publisher) Reserve(ctx context.Context, name string, window, most int) (queue.Room, error) {
	depth, err := p.depth(ctx, name)
	if err != nil {
		return queue.Room{}, err
	}
	return queue.Room{Depth: depth, Granted: max(0, min(most, window-depth))}, nil
}

// Release implements queue.Publisher. Reserve holds nothing for anybody.
func (p *Publisher) Release(context.Context, string) error { return nil }

func (p *Publisher) depth(ctx context.Context, name string) (int, error) {
	d, known := p.depths[name]
	if !known {
		return 0, fmt.Errorf("measure queue: %q is none of ours", name)
	}
	if n, fresh := d.known(); fresh {
		return n, nil
	}
	before := d.mark()
	states, err := p.inspector.look(ctx, name, []string{name})
	if err != nil {
		return 0, err
	}
	state, there := states[name]
	if !there {
		p.sender.miss()
	}
	return d.measured(state.Messages, before), nil
}

// Ping asks the broker for a sign of life. One that takes no messages has none.
func (p *Publisher) Ping(ctx context.Context) error {
	if reason := p.Status().Blocked; reason != "" {
		return errors.New("rabbitmq takes no messages: " + reason)
	}
	return p.inspector.Ping(ctx)
}

// Status is how the connection for publishing stands. It is made with the first task.
func (p *Publisher) Status() Status { return p.sender.link.status() }

// Close ends the connections. What waits for its confirm gets an error.
func (p *Publisher) Close() error {
	p.sender.link.close()
	return p.inspector.Close()
}
