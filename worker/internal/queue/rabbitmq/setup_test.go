package rabbitmq_test

import (
	"context"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	amqp "github.com/rabbitmq/amqp091-go"

	"email-gateway/shared/logtest"
	"email-gateway/shared/waittest"
	"email-gateway/worker/internal/queue"
	"email-gateway/worker/internal/queue/rabbitmq"
	"email-gateway/worker/internal/queue/rabbitmqtest"
)

// timeout is how long a test waits for something that should happen soon.
const timeout = 3 * time.Minute

// fixture is a pipeline of one test on a server.
type fixture struct {
	t        *testing.T
	url      string
	conn     rabbitmq.Conn
	topology rabbitmq.Topology
	log      *logtest.Buffer
	renewal  time.Duration // of consumers; 0 = the default
	aside    time.Duration // after which consumers set tasks aside; 0 = the default
}

// mailing is the pipeline of mailing jobs with waits of 0.3 and 0.6 s.
func mailing(t *testing.T) fixture {
	t.Helper()
	topology := rabbitmq.Mailing()
	topology.Retries[0].TTL, topology.Retries[1].TTL = 300*time.Millisecond, 600*time.Millisecond
	return onShared(t, topology)
}

func recipients(t *testing.T) fixture {
	t.Helper()
	return onShared(t, rabbitmq.Recipients(200*time.Millisecond, 3))
}

func onShared(t *testing.T, topology rabbitmq.Topology) fixture {
	t.Helper()
	url, prefix := rabbitmqtest.Shared(t)
	topology = topology.WithPrefix(prefix)
	rabbitmqtest.Delete(t, url, queues(topology), exchanges(topology))
	return fixture{t: t, url: url, conn: parse(t, url), topology: topology, log: &logtest.Buffer{}}
}

func queues(topology rabbitmq.Topology) (names []string) {
	for _, q := range topology.Queues() {
		names = append(names, q.Name)
	}
	return names
}

func exchanges(topology rabbitmq.Topology) (names []string) {
	for _, e := range topology.Exchanges {
		names = append(names, e.Name)
	}
	return names
}

func parse(t *testing.T, text string) rabbitmq.Conn {
	t.Helper()
	conn, err := rabbitmq.ParseURL(text)
	if err != nil {
		t.Fatal(err)
	}
	return conn
}

func (s fixture) logger() *slog.Logger { return slog.New(slog.NewTextHandler(s.log, nil)) }

func (s fixture) publisher() *rabbitmq.Publisher {
	s.t.Helper()
	p := rabbitmq.NewPublisher(rabbitmq.PublisherConfig{
		Log: s.logger(), Conn: s.conn, Topologies: []rabbitmq.Topology{s.topology},
	})
	s.t.Cleanup(func() { _ = p.Close() })
	return p
}

// consume starts a consumer of the main queue, one task at a time unless change says otherwise.
// stop ends it as a stopping program does.
func (s fixture) consume(handler queue.BatchHandler, change ...func(*rabbitmq.ConsumerConfig)) (c *rabbitmq.Consumer, stop func()) {
	s.t.Helper()
	config := rabbitmq.ConsumerConfig{
		Log: s.logger(), Conn: s.conn, Topology: s.topology, Queue: s.topology.Main.Name, Handler: handler, Prefetch: 1,
	}
	for _, f := range change {
		f(&config)
	}
	c, err := rabbitmq.NewConsumer(config)
	if err != nil {
		s.t.Fatal(err)
	}
	if s.renewal > 0 {
		c.RenewAfter(s.renewal)
	}
	if s.aside > 0 {
		c.SetAsideAfter(s.aside)
	}
	if err := c.Start(s.t.Context(), func(err error) { s.t.Error(err) }); err != nil {
		s.t.Fatal(err)
	}
	stop = sync.OnceFunc(func() {
		ctx, cancel := context.WithTimeout(context.Background(), timeout)
		defer cancel()
		if err := c.Stop(ctx); err != nil {
			s.t.Errorf("stop consumer: %v", err)
		}
	})
	s.t.Cleanup(stop)
	return c, stop
}

func ofDLQ(c *rabbitmq.ConsumerConfig) { c.Queue = c.Topology.DLQ.Name }

func (s fixture) task() queue.Task {
	id := uuid.Must(uuid.NewV7()).String()
	return queue.Task{ID: id, Queue: s.topology.Main.Name, Payload: []byte(`{"outboxId":"` + id + `"}`)}
}

func (s fixture) publish(p *rabbitmq.Publisher) queue.Task {
	s.t.Helper()
	task := s.task()
	if placed, err := p.Publish(s.t.Context(), task); err != nil || placed != queue.Queued {
		s.t.Fatalf("publish: placed %d, error %v", placed, err)
	}
	return task
}

// get waits for a message on a queue and takes it.
func (s fixture) get(name string) amqp.Delivery {
	s.t.Helper()
	channel := rabbitmqtest.Channel(s.t, s.url)
	var message amqp.Delivery
	waittest.Until(s.t, "a message on "+name, func() bool {
		found, ok, err := channel.Get(name, true)
		if err != nil {
			s.t.Fatal(err)
		}
		message = found
		return ok
	})
	return message
}

// expect waits until the queue holds this many ready messages.
func (s fixture) expect(name string, want int) {
	s.t.Helper()
	inspector := rabbitmq.NewInspector(s.logger(), s.conn, s.topology)
	defer func() { _ = inspector.Close() }()
	var last int
	defer func() {
		if s.t.Failed() {
			s.t.Logf("%s holds %d, want %d", name, last, want)
		}
	}()
	waittest.Until(s.t, "depth of "+name, func() bool {
		states, err := inspector.Inspect(s.t.Context())
		last = states[name].Messages
		return err == nil && last == want
	})
}

// delivery is one call of a handler, which ends when it is answered.
type delivery struct {
	ctx    context.Context
	at     time.Time
	tasks  []queue.Task
	answer chan []error
}

// all answers every task with err.
func (d delivery) all(err error) {
	errs := make([]error, len(d.tasks))
	for i := range errs {
		errs[i] = err
	}
	d.answer <- errs
}

// deliveries passes each batch to the test and returns the test's answer.
type deliveries chan delivery

func (d deliveries) handle(ctx context.Context, tasks []queue.Task) []error {
	one := delivery{ctx: ctx, at: time.Now(), tasks: tasks, answer: make(chan []error, 1)}
	d <- one
	return <-one.answer
}

func (d deliveries) next(t *testing.T) delivery {
	t.Helper()
	select {
	case one := <-d:
		return one
	case <-time.After(timeout):
		t.Fatal("no task was delivered")
		return delivery{}
	}
}

func within(t *testing.T, d time.Duration) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), d)
	t.Cleanup(cancel)
	return ctx
}
