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
	headerRetries = "x-retries"      // how often the task was retried
	headerReason  = "x-retry-reason" // the last error
	headerTrace   = "traceparent"    // of the publishing span, if any
)

// PublisherConfig configures a Publisher.
type PublisherConfig struct {
	Log        *slog.Logger
	Conn       Conn
	Topologies []Topology
}

// Publisher publishes tasks to the main queues of its pipelines. It implements queue.Publisher with these differences: RabbitMQ
// has no task ids, so a task that is published again is queued twice, and Publish always returns Queued; Reserve reserves no
// room.
type Publisher struct {
	sender    *sender
	inspector *Inspector
	depths    map[string]*depth
	targets   map[string]Queue
}

// NewPublisher makes a Publisher with its own connections. It does not connect yet: RabbitMQ may
// start later.
func NewPublisher(c PublisherConfig) *Publisher {
	p := &Publisher{
		sender:    newSender(newReconnector(c.Log, c.Conn, "publisher", c.Topologies...)),
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

// Publish implements queue.Publisher. It returns when the broker has stored the task, or when ctx
// ends.
func (p *Publisher) Publish(ctx context.Context, task queue.Task) (queue.Placed, error) {
	to, known := p.targets[task.Queue]
	if !known {
		return queue.Queued, fmt.Errorf("publish task: queue %q is not configured", task.Queue)
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

// Reserve implements queue.Publisher, but does not count unacknowledged tasks, and publishers do not share the window. The
// depth is measured at most every 100 ms; messages published since are added.
func (p *Publisher) Reserve(ctx context.Context, name string, window, limit int) (queue.Room, error) {
	depth, err := p.depth(ctx, name)
	if err != nil {
		return queue.Room{}, err
	}
	return queue.Room{Depth: depth, Granted: max(0, min(limit, window-depth))}, nil
}

// Release implements queue.Publisher. It does nothing, because Reserve keeps no reservation.
func (p *Publisher) Release(context.Context, string) error { return nil }

func (p *Publisher) depth(ctx context.Context, name string) (int, error) {
	d, known := p.depths[name]
	if !known {
		return 0, fmt.Errorf("measure queue: %q is not configured", name)
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
		p.sender.markStale()
	}
	return d.measured(state.Messages, before), nil
}

// Ping checks that the broker responds and accepts messages.
func (p *Publisher) Ping(ctx context.Context) error {
	if reason := p.Status().Blocked; reason != "" {
		return errors.New("rabbitmq accepts no messages: " + reason)
	}
	return p.inspector.Ping(ctx)
}

// Status returns the state of the publishing connection, which the first task opens.
func (p *Publisher) Status() Status { return p.sender.conn.status() }

// Close closes the connections. Pending publishes get an error.
func (p *Publisher) Close() error {
	p.sender.conn.close()
	return p.inspector.Close()
}
