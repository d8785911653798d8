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

// Database says whether Postgres can be used.
type Database interface {
	// Ask returns nil if it can.
	Ask(ctx context.Context) error
	// Await returns when it can, or with an error when ctx ends.
	Await(ctx context.Context) error
}

// ConsumerConfig configures a Consumer.
type ConsumerConfig struct {
	Log      *slog.Logger
	Conn     Conn
	Topology Topology
	// Queue is the name of the pipeline's main queue or of its DLQ. Failed tasks stay on the DLQ: the consumer ends its
	// deliveries for a wait that doubles from 1 s up to 60 s while no task succeeds.
	Queue   string
	Handler queue.BatchHandler
	// Database is asked before each batch: a consumer that cannot use Postgres leaves the tasks to other workers. Optional.
	Database Database
	// Concurrency is the number of concurrent batches (at least 1).
	Concurrency int
	// BatchSize is the maximum number of tasks in a batch (at least 1). BatchWait bounds the wait
	// for them after the first one.
	BatchSize int
	BatchWait time.Duration
	// Prefetch is the maximum number of unacknowledged tasks on one channel, up to 65,535. It is
	// raised to the size of all concurrent batches. Batches that are set aside keep a channel of their own.
	Prefetch int
}

// Consumer passes the tasks of one queue to a handler in batches. It is a service.Service: it also starts while RabbitMQ is
// down, and connects later.
//
// A task is acknowledged when the handler has completed it, or when the broker has confirmed its copy on the next queue. After
// a crash in between it is delivered twice; none is lost.
type Consumer struct {
	log    *slog.Logger
	config ConsumerConfig
	dlq    bool
	conn   *reconnector
	sender *sender // publishes tasks to other queues
	dlqBackoff
	aside aside

	renewal  time.Duration
	working  atomic.Bool // a channel is consuming, or waits for Postgres or the next try of a DLQ
	stopping context.Context
	stop     context.CancelFunc
	done     chan struct{}
}

// NewConsumer makes a Consumer with its own connections.
func NewConsumer(c ConsumerConfig) (*Consumer, error) {
	c.Concurrency, c.BatchSize = max(c.Concurrency, 1), max(c.BatchSize, 1)
	c.Prefetch = max(c.Prefetch, c.Concurrency*c.BatchSize)
	if c.Database == nil {
		c.Database = available{}
	}
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
		conn:    newReconnector(log, c.Conn, "consumer", c.Topology),
		sender:  newSender(newReconnector(log, c.Conn, "retries", c.Topology)),
		aside:   aside{after: asideAfter},
		renewal: renewal, done: make(chan struct{}),
	}
	consumer.stopping, consumer.stop = context.WithCancel(context.Background())
	return consumer, nil
}

// Start starts consuming.
func (c *Consumer) Start(context.Context, func(error)) error {
	go c.run()
	return nil
}

// Stop stops consuming, cancels the handler's context, waits until running batches are completed and acknowledged, and closes
// the connections. Other tasks return to the queue. If ctx ends first, Stop closes the connections of the running batches too.
func (c *Consumer) Stop(ctx context.Context) error {
	c.stop()
	select {
	case <-c.done:
		return nil
	case <-ctx.Done():
		c.conn.close()
		c.sender.conn.close()
		return fmt.Errorf("wait for handlers: %w", ctx.Err())
	}
}

// Consuming reports whether tasks are being consumed. A wait for Postgres, or between the tries of a DLQ, counts as consuming.
func (c *Consumer) Consuming() bool { return c.working.Load() }

// Ping returns an error if no tasks are being consumed, or if some cannot be republished.
func (c *Consumer) Ping(context.Context) error {
	if !c.Consuming() {
		return errors.New("not consuming from " + c.config.Queue)
	}
	if err := c.aside.err(); err != nil {
		return fmt.Errorf("consume from %s: %w", c.config.Queue, err)
	}
	return nil
}

// Status is the state of the consuming connection.
func (c *Consumer) Status() Status { return c.conn.status() }

// run consumes on one connection after the other.
func (c *Consumer) run() {
	defer close(c.done)
	defer c.sender.conn.close()
	defer c.conn.close()
	var logged string // avoids logging the same error repeatedly
	for c.stopping.Err() == nil {
		s, err := c.conn.session(c.stopping)
		if err != nil {
			continue // logged by the reconnector, which waits before it dials again
		}
		if err := c.work(s); err != nil && c.stopping.Err() == nil && err.Error() != logged {
			logged = err.Error()
			c.log.Error("cannot consume, retrying", "error", err)
		} else if err == nil {
			logged = ""
		}
	}
}

// work consumes until the connection ends, the broker cancels the consumer, or the consumer stops.
func (c *Consumer) work(s *session) error {
	// Unacknowledged tasks return to the queue. A deleted queue is declared again on the next
	// connection.
	defer s.close()
	defer func() {
		if c.stopping.Err() != nil {
			c.aside.running.Wait() // they acknowledge what they have republished
		}
	}()
	defer c.working.Store(false)
	for {
		if !c.awaitDatabase(s) {
			return nil
		}
		renew, err := c.take(s)
		if err != nil {
			return fmt.Errorf("consume: %w", err)
		}
		if !renew {
			return nil
		}
	}
}

// take consumes on one channel. It waits for running batches, so that a reconnect does not exceed
// the configured concurrency.
func (c *Consumer) take(s *session) (renew bool, err error) {
	channel, deliveries, err := c.consume(s)
	if err != nil {
		return false, err
	}
	cancels := channel.NotifyCancel(make(chan string, 1))
	closes := channel.NotifyClose(make(chan *amqp.Error, 1))
	c.working.Store(true)
	defer context.AfterFunc(c.stopping, func() {
		// The connection is closed soon; until then the broker delivers nothing more.
		_ = s.withTimeout(callTime, func() error { return channel.Cancel(consumerTag, false) })
	})()
	p := &activity{}
	watching, cancel := context.WithCancel(c.stopping)
	defer cancel()
	go c.watchdog(watching, s, channel, p)

	batches := &batcher{deliveries: deliveries, activity: p, turn: make(chan struct{}, 1), size: c.config.BatchSize, wait: c.config.BatchWait}
	tasks := c.tasksOf(s, channel)
	tasks.leave = sync.OnceFunc(func() { c.leave(s, channel, batches) })
	var working sync.WaitGroup
	for range c.config.Concurrency {
		working.Go(func() {
			for {
				batch := batches.next(c.stopping)
				if len(batch) == 0 {
					return
				}
				c.process(tasks, batch)
				p.end()
			}
		})
	}
	working.Wait()
	if batches.cancelled.Load() && s.alive() && c.stopping.Err() == nil {
		cancel()
		if err := c.closeAfter(s, channel, tasks); err != nil {
			return false, err
		}
		return c.backOff(s), nil
	}
	c.logEnd(s, cancels, closes)
	return p.renewed.Load() && s.alive() && c.stopping.Err() == nil, nil
}

// logEnd logs that the broker has cancelled the consumer or closed the channel. The reconnector logs the end of a connection,
// and a close by this process is not logged.
func (c *Consumer) logEnd(s *session, cancels <-chan string, closes <-chan *amqp.Error) {
	select {
	case _, taken := <-cancels:
		if taken {
			c.log.Warn("the broker cancelled the consumer, declaring the queue again")
			return
		}
	default:
	}
	select {
	case err := <-closes:
		if err != nil && !s.conn.IsClosed() {
			c.log.Error("the broker closed the channel, unacknowledged tasks will be redelivered", "error", err)
		}
	default:
	}
}

// consumerTag is the consumer's tag; it is the only one on its channel.
const consumerTag = "email-gateway"

func (c *Consumer) consume(s *session) (channel *amqp.Channel, deliveries <-chan amqp.Delivery, err error) {
	err = s.withTimeout(callTime, func() error {
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
