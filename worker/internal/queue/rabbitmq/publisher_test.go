package rabbitmq_test

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	amqp "github.com/rabbitmq/amqp091-go"

	"email-gateway/shared/logtest"
	"email-gateway/shared/waittest"
	"email-gateway/worker/internal/queue"
	"email-gateway/worker/internal/queue/queuetest"
	"email-gateway/worker/internal/queue/rabbitmq"
	"email-gateway/worker/internal/queue/rabbitmqtest"
)

var _ queue.Publisher = (*rabbitmq.Publisher)(nil)

func TestPublish_Message(t *testing.T) {
	t.Parallel()
	for _, s := range []fixture{mailing(t), recipients(t)} {
		task := s.publish(s.publisher())
		got := s.get(s.topology.Main.Name)
		sent := []any{got.Exchange, got.RoutingKey, got.MessageId, got.ContentType, got.DeliveryMode, string(got.Body), got.Headers["x-retries"]}
		want := []any{
			s.topology.Main.Exchange, s.topology.Main.Key, task.ID, "application/json", amqp.Persistent, string(task.Payload), int32(0),
		}
		if diff := cmp.Diff(want, sent); diff != "" {
			t.Errorf("(-want +got)\n%s", diff)
		}
		if age := time.Since(got.Timestamp); age < 0 || age > time.Minute {
			t.Errorf("published %s ago", age)
		}
	}
}

func TestPublish_Concurrent(t *testing.T) {
	t.Parallel()
	s := mailing(t)
	p := s.publisher()
	var wg sync.WaitGroup
	var failed atomic.Int64
	for range 64 {
		wg.Go(func() {
			for range 20 {
				if _, err := p.Publish(t.Context(), s.task()); err != nil {
					failed.Add(1)
				}
			}
		})
	}
	wg.Wait()
	if failed.Load() > 0 {
		t.Errorf("%d of 1280 failed", failed.Load())
	}
	s.expect(s.topology.Main.Name, 1280)
}

// The error says when nothing was sent: without a connection, and when ctx had ended before.
func TestPublish_NothingSent(t *testing.T) {
	t.Parallel()
	s := mailing(t)
	p := s.publisher()
	s.publish(p) // queues deleted during their declaration would break the broker
	over, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := p.Publish(over, s.task()); !errors.Is(err, queue.ErrNotPublished) {
		t.Errorf("without time: %v", err)
	}
	s.expect(s.topology.Main.Name, 1)
	unreachable := rabbitmq.NewPublisher(rabbitmq.PublisherConfig{Log: slog.New(slog.DiscardHandler), Conn: parse(t, "amqp://127.0.0.1:1/"), Topologies: []rabbitmq.Topology{s.topology}})
	defer func() { _ = unreachable.Close() }()
	if _, err := unreachable.Publish(t.Context(), s.task()); !errors.Is(err, queue.ErrNotPublished) {
		t.Errorf("without a broker: %v", err)
	}
}

// An unroutable message is confirmed nevertheless. Publish returns an error, and declares what is
// missing before the next one.
func TestPublish_RedeclaresTopology(t *testing.T) {
	t.Parallel()
	for name, damage := range map[string]func(*amqp.Channel, rabbitmq.Topology) error{
		"queue deleted": func(c *amqp.Channel, x rabbitmq.Topology) error {
			_, err := c.QueueDelete(x.Main.Name, false, false, false)
			return err
		},
		"queue unbound": func(c *amqp.Channel, x rabbitmq.Topology) error {
			return c.QueueUnbind(x.Main.Name, x.Main.Key, x.Main.Exchange, nil)
		},
		"exchange deleted": func(c *amqp.Channel, x rabbitmq.Topology) error {
			return c.ExchangeDelete(x.Main.Exchange, false, false)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := mailing(t)
			p := s.publisher()
			s.publish(p)
			s.get(s.topology.Main.Name)
			if err := damage(rabbitmqtest.Channel(t, s.url), s.topology); err != nil {
				t.Fatal(err)
			}
			if _, err := p.Publish(t.Context(), s.task()); err == nil {
				t.Error("published an unroutable message")
			} else {
				t.Log(err)
			}
			task := s.publish(p)
			if got := s.get(s.topology.Main.Name).MessageId; got != task.ID {
				t.Errorf("the queue has %s, want %s", got, task.ID)
			}
		})
	}
}

// A return belongs to the returned message and to no other one in flight.
func TestPublish_ReturnedMessage(t *testing.T) {
	t.Parallel()
	s, other := mailing(t), recipients(t)
	p := rabbitmq.NewPublisher(rabbitmq.PublisherConfig{
		Log: s.logger(), Conn: s.conn, Topologies: []rabbitmq.Topology{s.topology, other.topology},
	})
	t.Cleanup(func() { _ = p.Close() })
	s.publish(p)
	main := s.topology.Main
	if err := rabbitmqtest.Channel(t, s.url).QueueUnbind(main.Name, main.Key, main.Exchange, nil); err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	var lost atomic.Int64
	for i := range 128 {
		wg.Go(func() {
			task := s.task()
			if i%2 == 0 {
				task.Queue = other.topology.Main.Name
			}
			_, err := p.Publish(t.Context(), task)
			if i%2 == 0 && err != nil {
				t.Errorf("a message for the other queue: %v", err)
			}
			if i%2 == 1 && err != nil {
				lost.Add(1)
			}
		})
	}
	wg.Wait()
	if lost.Load() == 0 {
		t.Error("none was returned")
	}
	other.expect(other.topology.Main.Name, 64)
	// Messages not reported as lost are queued, with the one from before.
	s.expect(main.Name, 1+64-int(lost.Load()))
}

func TestPublish_SameIDTwice(t *testing.T) {
	t.Parallel()
	s := mailing(t)
	p := s.publisher()
	task := s.task()
	var wg sync.WaitGroup
	for range 16 {
		wg.Go(func() {
			if _, err := p.Publish(t.Context(), task); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	s.expect(s.topology.Main.Name, 16)
}

func TestPublish_UnknownQueue(t *testing.T) {
	t.Parallel()
	s := mailing(t)
	p := s.publisher()
	s.publish(p) // declares the queues, so that the clean-up finds them
	if _, err := p.Publish(t.Context(), queue.Task{ID: "1", Queue: "email:send"}); err == nil || !strings.Contains(err.Error(), "email:send") {
		t.Errorf("got %v", err)
	}
	if _, err := queuetest.Depth(t.Context(), p, "email:send"); err == nil {
		t.Error("a queue that is not configured has a depth")
	}
}

func TestDepth(t *testing.T) {
	t.Parallel()
	s := mailing(t)
	p := s.publisher()
	name := s.topology.Main.Name
	depth := func() int {
		t.Helper()
		n, err := queuetest.Depth(t.Context(), p, name)
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	if n := depth(); n != 0 {
		t.Errorf("a queue that does not exist yet has %d", n)
	}
	for want := 1; want <= 5; want++ {
		s.publish(p)
		if n := depth(); n < want {
			t.Errorf("%d published, depth %d", want, n)
		}
	}
	waittest.Until(t, "depth 5", func() bool { return depth() == 5 })
	for range 5 {
		s.get(name)
	}
	waittest.Until(t, "depth 0", func() bool { return depth() == 0 })
}

// Whatever is at the other end, a publisher waits no longer than its timeout.
func TestPublish_Timeout(t *testing.T) {
	t.Parallel()
	listener, err := net.Listen("tcp", "127.0.0.1:0") // accepts connections and never responds
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = listener.Close() })
	closed, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	_ = closed.Close()
	for name, url := range map[string]string{
		"mute": "amqp://" + listener.Addr().String(), "closed": "amqp://" + closed.Addr().String(),
	} {
		s := fixture{t: t, conn: parse(t, url), topology: rabbitmq.Mailing(), log: &logtest.Buffer{}}
		p := s.publisher()
		for _, ask := range []func(context.Context) error{
			func(ctx context.Context) error { _, err := p.Publish(ctx, s.task()); return err },
			func(ctx context.Context) error { _, err := queuetest.Depth(ctx, p, s.topology.Main.Name); return err },
			p.Ping,
		} {
			ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
			start := time.Now()
			if err := ask(ctx); err == nil {
				t.Errorf("%s: no error", name)
			}
			if took := time.Since(start); took > time.Minute {
				t.Errorf("%s: answered after %s", name, took)
			}
			cancel()
		}
		if p.Status().Connected {
			t.Errorf("%s: connected", name)
		}
	}
}
