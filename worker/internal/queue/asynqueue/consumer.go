package asynqueue

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime/debug"
	"strings"
	"sync"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"email-gateway/shared/email"
	"email-gateway/shared/telemetry"
	"email-gateway/worker/internal/queue"
)

const (
	// perServer is the maximum concurrency of one asynq.Server. A Server takes its tasks one after the other, 9,000 to 12,000
	// per second on a small machine at any concurrency; two Servers in one process take twice as many.
	perServer = 64
	// For concurrencies up to fewServers * perServer, one Server is started for each fewPerServer tasks, at most fewServers: a
	// single Server waits for a round trip after each task, and the commands of several Servers share a round trip. With a
	// concurrency of 64, four Servers instead of one save a tenth of the CPU time per email (bench --section mailing).
	fewServers   = 4
	fewPerServer = 16
	// defaultMaxIdle is the default of ConsumerConfig.MaxIdle: the maximum wait of a task whose announcement was lost. Each
	// poll of the queues reads three lengths.
	defaultMaxIdle = 25 * time.Millisecond
	// pickup is how long a Server sleeps when all queues were empty, before pollDelayer delays its next poll.
	pickup = time.Millisecond
	// forward is how often due delayed tasks are moved to pending. The first Server does this for all, and deletes expired
	// completed tasks; the others do both once per hour.
	forward = 250 * time.Millisecond
	seldom  = time.Hour
	// shutdownGrace is the time for a handler to end its provider call (30 s) and record the result. After that the task
	// returns to the queue.
	shutdownGrace = 40 * time.Second
)

// ConsumerConfig configures a Consumer.
type ConsumerConfig struct {
	Log     *slog.Logger
	Conn    Conn
	Handler queue.Handler
	// Concurrency is the maximum number of active tasks.
	Concurrency int
	// Admission admits each task before it is taken. nil: tasks are taken whenever fewer than
	// Concurrency are active.
	Admission Admission
	// MaxIdle is the time after which an idle consumer polls the queues although no task was announced. 0: 25 ms.
	MaxIdle time.Duration
}

// Consumer passes the tasks of all email queues to a handler, in proportion to the weights of the queues. It is a
// service.Service: it also starts while Redis is down, and connects later.
type Consumer struct {
	log     *slog.Logger
	conn    Conn
	handler queue.Handler
	redis   redis.UniversalClient
	admit   Admission // nil = tasks are not admitted
	servers []*asynq.Server
	workers *workers
	// subscriber wakes idle servers.
	subscriber *subscriber
	listening  sync.WaitGroup

	stopping context.Context // ends when Stop begins
	stop     context.CancelFunc
}

// NewConsumer makes a Consumer with its own connections.
func NewConsumer(c ConsumerConfig) *Consumer {
	consumer := &Consumer{log: c.Log, conn: c.Conn, handler: c.Handler, admit: c.Admission, redis: c.Conn.open(), subscriber: newSubscriber()}
	// The first hook is the outer one: sweeps receives the errors of the coalescer.
	consumer.redis.AddHook(sweeps{})
	coalesce(consumer.redis)
	consumer.workers = newWorkers(c.Concurrency, consumer.process)
	consumer.stopping, consumer.stop = context.WithCancel(context.Background())
	queues := make(map[string]int)
	for _, name := range email.Queues() {
		queues[c.Conn.queueName(name)] = email.QueueWeight(name)
	}
	logger := newLogger(c.Log)
	others := 0
	for i, share := range shares(c.Concurrency) {
		client, forward, janitor := consumer.redis, forward, time.Duration(0)
		if i > 0 {
			forward, janitor = seldom, seldom
		}
		if c.Admission != nil {
			client = &admitted{UniversalClient: consumer.redis, admission: c.Admission, others: others, stopping: consumer.stopping, busy: make(map[string]bool)}
		}
		client = &pollDelayer{
			UniversalClient: client, subscriber: consumer.subscriber, queues: len(queues),
			maxIdle: cmp.Or(c.MaxIdle, defaultMaxIdle), stopping: consumer.stopping,
		}
		others += share
		consumer.servers = append(consumer.servers, asynq.NewServerFromRedisClient(client, asynq.Config{
			Concurrency:              share,
			Queues:                   queues,
			TaskCheckInterval:        pickup,
			DelayedTaskCheckInterval: forward,
			JanitorInterval:          janitor,
			ShutdownTimeout:          shutdownGrace,
			RetryDelayFunc:           retryDelay,
			ErrorHandler:             asynq.ErrorHandlerFunc(consumer.report),
			// Every error counts as a failure, including a requested delay: this makes asynq count
			// the deliveries of a task.
			IsFailure: func(err error) bool { return err != nil },
			Logger:    logger,
		}))
	}
	return consumer
}

// shares splits a concurrency into the parts of the Servers, as evenly as possible.
func shares(concurrency int) []int {
	concurrency = max(concurrency, 1)
	servers := func(each int) int { return (concurrency + each - 1) / each }
	n := max(servers(perServer), min(servers(fewPerServer), fewServers))
	parts := make([]int, n)
	for i := range parts {
		parts[i] = concurrency/n + min(1, max(0, concurrency%n-i))
	}
	return parts
}

// Start starts taking tasks.
func (c *Consumer) Start(context.Context, func(error)) error {
	c.listening.Go(func() { c.subscriber.listen(c.stopping, c.redis, c.conn.announcements()) })
	for _, server := range c.servers {
		if err := server.Start(c.workers); err != nil {
			return fmt.Errorf("start consumer: %w", err)
		}
	}
	return nil
}

// Stop stops taking tasks, cancels the handlers' context, waits for active tasks and closes the
// connections.
func (c *Consumer) Stop(ctx context.Context) error {
	c.stop()
	done := make(chan struct{})
	go func() {
		defer close(done)
		var stopping sync.WaitGroup
		for _, server := range c.servers {
			stopping.Go(server.Shutdown)
		}
		stopping.Wait()
		c.workers.stop()
		c.listening.Wait()
	}()
	select {
	case <-done:
		if err := c.redis.Close(); err != nil {
			return fmt.Errorf("close redis: %w", err)
		}
		return nil
	case <-ctx.Done():
		return fmt.Errorf("wait for handlers: %w", ctx.Err())
	}
}

// Ping reports whether every queue can be written to.
func (c *Consumer) Ping(ctx context.Context) error { return c.conn.ping(ctx, c.redis) }

// process runs the handler and converts its result for asynq. The handler does not get the context of asynq, which ends when
// Redis has lost the lease: an email whose provider call is interrupted has an unknown outcome.
func (c *Consumer) process(ctx context.Context, t *asynq.Task) (err error) {
	start := time.Now()
	var admitted time.Time
	if c.admit != nil {
		admitted = c.admit.Begin()
		defer c.admit.End()
	}
	defer func() {
		if f := (*fault)(nil); errors.As(err, &f) {
			f.took = time.Since(start)
		}
	}()
	defer func() {
		if p := recover(); p != nil {
			err = &fault{text: email.MaskText(fmt.Sprintf("handler panicked: %v", p)), stack: debug.Stack()}
		}
	}()
	id, _ := asynq.GetTaskID(ctx)
	name, _ := asynq.GetQueueName(ctx)
	retried, _ := asynq.GetRetryCount(ctx)
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	defer context.AfterFunc(c.stopping, cancel)()
	return asFault(c.handler(ctx, queue.Task{
		ID: id, Queue: strings.TrimPrefix(name, c.conn.prefix), Payload: t.Payload(), Retried: retried, Traceparent: t.Headers()[headerTraceparent],
		Admitted: admitted,
	}))
}

// report logs errors of a handler or of asynq. Delays and permanent failures are logged by the
// pipeline.
func (c *Consumer) report(ctx context.Context, t *asynq.Task, err error) {
	id, _ := asynq.GetTaskID(ctx)
	log := telemetry.EmailLogger(c.log, telemetry.EmailOf(id, t.Payload())).With(telemetry.State, email.EventReceived, "error", err)
	var (
		later *queue.RetryLater
		dead  *queue.Dead
		f     *fault
	)
	if errors.As(err, &f) {
		log = log.With(telemetry.DurationMS, f.took.Milliseconds())
	}
	switch {
	case errors.As(err, &later), errors.As(err, &dead):
		log.Debug("task not completed")
	case errors.As(err, &f) && f.stack != nil:
		log.Error("task panicked", "stack", string(f.stack))
	default:
		log.Error("task failed")
	}
}
