package rabbitmq

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"email-gateway/worker/internal/queue"
)

// ConsumerConfig makes a Consumer.
type ConsumerConfig struct {
	Log      *slog.Logger
	Conn     Conn
	Topology Topology
	// Queue is the name of the pipeline's main queue or of its DLQ. On the DLQ a task that
	// is not done stays: it comes again after 1 s, then 2, up to 60 as long as nothing
	// succeeds.
	Queue   string
	Handler queue.BatchHandler
	// Concurrency is how many batches are in work at once (at least 1).
	Concurrency int
	// BatchSize is how many tasks a batch holds at most (at least 1), BatchWait how long it
	// is waited for them, from the first one on.
	BatchSize int
	BatchWait time.Duration
	// Prefetch is how many tasks this consumer holds at most. Less than all its batches
	// together makes no sense, and is raised to that; up to 65,535.
	Prefetch int
}

// Consumer takes the tasks of one queue and gives them to a handler in batches. It is a
// service.Service: it starts whether RabbitMQ is up or not, and connects when it is.
//
// A task is acknowledged when the handler is done with it, or when the broker has
// confirmed that it stands on the queue where it goes next. A crash in between makes it
// come twice; none is lost.
type Consumer struct {
	log    *slog.Logger
	config ConsumerConfig
	dlq    bool
	link   *link
	sender *sender // for what goes on to another queue
	patience

	renewal  time.Duration
	working  atomic.Bool // a channel takes tasks
	stopping context.Context
	stop     context.CancelFunc
	done     chan struct{}
}

// NewConsumer makes a Consumer with connections of its own.
func NewConsumer(c ConsumerConfig) (*Consumer, error) {
	c.Concurrency, c.BatchSize = max(c.Concurrency, 1), max(c.BatchSize, 1)
	c.Prefetch = max(c.Prefetch, c.Concurrency*c.BatchSize)
	switch {
	case c.Queue != c.Topology.Main.Name && c.Queue != c.Topology.DLQ.Name:
		return nil, fmt.Errorf("make consumer: queue %q is neither the pipeline's main queue nor its DLQ", c.Queue)
	case c.Prefetch > 65_535:
		return nil, fmt.Errorf("make consumer: %d batches of %d are more tasks than a consumer may hold (65535)",
			c.Concurrency, c.BatchSize)
	}
	log := c.Log.With("queue", c.Queue)
	consumer := &Consumer{
		log: log, config: c, dlq: c.Queue == c.Topology.DLQ.Name,
		link:    newLink(log, c.Conn, "consumer", c.Topology),
		sender:  newSender(newLink(log, c.Conn, "retries", c.Topology)),
		renewal: renewal, done: make(chan struct{}),
	}
	consumer.stopping, consumer.stop = context.WithCancel(context.Background())
	return consumer, nil
}

// Start begins to take tasks.
func (c *Consumer) Start(context.Context, func(error)) error {
	go c.run()
	return nil
}

// Stop takes no more tasks, tells the handler, waits until what it has in hand is done
// and acknowledged, and closes the connections. Tasks that were not begun go back to the
// queue. When ctx ends first, those in work do too.
func (c *Consumer) Stop(ctx context.Context) error {
	c.stop()
	select {
	case <-c.done:
		return nil
	case <-ctx.Done():
		c.link.close()
		c.sender.link.close()
		return fmt.Errorf("wait for handlers: %w", ctx.Err())
	}
}

// Ping says whether tasks are being taken.
func (c *Consumer) Ping(context.Context) error {
	if !c.working.Load() {
		return errors.New("no tasks are taken from " + c.config.Queue)
	}
	return nil
}

// Status is how the connection for consuming stands.
func (c *Consumer) Status() Status { return c.link.status() }

// run takes tasks on one connection after the other.
func (c *Consumer) run() {
	defer close(c.done)
	defer c.sender.link.close()
	defer c.link.close()
	var told string // so that trouble that lasts is told once
	for c.stopping.Err() == nil {
		s, err := c.link.session(c.stopping)
		if err != nil {
			continue // the link has told, and waits before it dials again
		}
		if err := c.work(s); err != nil && c.stopping.Err() == nil && err.Error() != told {
			told = err.Error()
			c.log.Error("tasks cannot be taken; trying on", "error", err)
		} else if err == nil {
			told = ""
		}
	}
}

// work takes tasks until the connection ends, the broker takes the queue away, or the
// consumer is told to stop.
func (c *Consumer) work(s *session) error {
	// What was not acknowledged by then goes back to the queue. A queue that was deleted
	// is declared again with the next connection.
	defer s.close()
	defer c.working.Store(false)
	for {
		renew, err := c.take(s)
		if err != nil {
			return fmt.Errorf("consume: %w", err)
		}
		if !renew {
			return nil
		}
	}
}

// take takes tasks on one channel. It waits for the tasks in hand: nobody works on more
// than was agreed because the network blinked.
func (c *Consumer) take(s *session) (renew bool, err error) {
	channel, deliveries, err := c.consume(s)
	if err != nil {
		return false, err
	}
	cancels := channel.NotifyCancel(make(chan string, 1))
	closes := channel.NotifyClose(make(chan *amqp.Error, 1))
	c.working.Store(true)
	defer context.AfterFunc(c.stopping, func() {
		// The connection is closed soon; until then the broker gives nothing more to us.
		_ = s.within(callTime, func() error { return channel.Cancel(consumerTag, false) })
	})()
	p := &pulse{}
	watching, cancel := context.WithCancel(c.stopping)
	defer cancel()
	go c.watchdog(watching, s, channel, p)

	tap := &tap{deliveries: deliveries, pulse: p, turn: make(chan struct{}, 1), size: c.config.BatchSize, wait: c.config.BatchWait}
	var working sync.WaitGroup
	for range c.config.Concurrency {
		working.Go(func() {
			for {
				batch := tap.next(c.stopping)
				if len(batch) == 0 {
					return
				}
				c.settle(s, batch)
				p.end()
			}
		})
	}
	working.Wait()
	c.tellEnd(s, cancels, closes)
	return p.renewed.Load() && s.alive() && c.stopping.Err() == nil, nil
}

// tellEnd tells of a channel that the broker ended. A connection's end is the link's to
// tell, and our own needs no word.
func (c *Consumer) tellEnd(s *session, cancels <-chan string, closes <-chan *amqp.Error) {
	select {
	case _, taken := <-cancels:
		if taken {
			c.log.Warn("the broker took the queue away; declaring it again")
			return
		}
	default:
	}
	select {
	case err := <-closes:
		if err != nil && !s.conn.IsClosed() {
			c.log.Error("the broker ended the channel; tasks in hand come again", "error", err)
		}
	default:
	}
}

// consumerTag names the consumer on its channel, where it is the only one.
const consumerTag = "email-gateway"

func (c *Consumer) consume(s *session) (channel *amqp.Channel, deliveries <-chan amqp.Delivery, err error) {
	err = s.within(callTime, func() error {
		if channel, err = s.conn.Channel(); err != nil {
			return err
		}
		if err := channel.Qos(c.config.Prefetch, 0, false); err != nil {
			return err
		}
		deliveries, err = channel.Consume(c.config.Queue, consumerTag, false, false, false, false, nil)
		return err
	})
	return channel, deliveries, err
}
