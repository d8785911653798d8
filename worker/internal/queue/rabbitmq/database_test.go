package rabbitmq_test

import (
	"context"
	"errors"
	"log/slog"
	"sync/atomic"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"email-gateway/shared/waittest"
	"email-gateway/worker/internal/dbcheck"
	"email-gateway/worker/internal/queue"
	"email-gateway/worker/internal/queue/rabbitmq"
	"email-gateway/worker/internal/queue/rabbitmqtest"
)

// A worker that cannot use Postgres leaves the tasks to the others: none reaches its handler again, none that it had
// received counts a try or a death of a consumer, and it holds none. It consumes again when Postgres answers. RabbitMQ
// counts as reachable.
func TestConsumer_DatabaseAway(t *testing.T) {
	t.Parallel()
	for _, dlq := range []bool{false, true} {
		t.Run(map[bool]string{false: "queue", true: "DLQ"}[dlq], func(t *testing.T) {
			t.Parallel()
			const tasks = 100 // more batches than a DLQ that waits after each returns within the time limit
			s := recipients(t)
			publish := s.publishing(dlq)
			var away, failed atomic.Bool
			db := dbcheck.New(slog.New(slog.DiscardHandler), func(context.Context) error {
				if away.Load() {
					return errors.New("away")
				}
				return nil
			})
			change := func(c *rabbitmq.ConsumerConfig) {
				c.BatchSize, c.BatchWait, c.Prefetch, c.Concurrency = 4, 20*time.Millisecond, tasks, 2
				if dlq {
					ofDLQ(c)
				}
			}
			var calls, again atomic.Int64 // of the worker without Postgres; after its first failure
			cut, _ := s.consume(func(_ context.Context, batch []queue.Task) []error {
				calls.Add(1)
				errs := make([]error, len(batch))
				if !away.Load() {
					return errs
				}
				if failed.Swap(true) {
					again.Add(1)
				}
				db.Failed()
				for i := range errs {
					errs[i] = &queue.RetryLater{Reason: "db_error"}
				}
				return errs
			}, change, func(c *rabbitmq.ConsumerConfig) { c.Database = db })
			away.Store(true)
			waittest.Until(t, "consuming", func() bool { return cut.Ping(t.Context()) == nil })
			for range tasks {
				publish()
			}
			waittest.Until(t, "the worker without Postgres has failed", failed.Load)
			var handled, counted atomic.Int64
			_, stop := s.consume(func(_ context.Context, batch []queue.Task) []error {
				for _, task := range batch {
					handled.Add(1)
					counted.Add(int64(task.Retried))
				}
				return make([]error, len(batch))
			}, change)
			waittest.Until(t, "all handled by the other worker", func() bool { return handled.Load() == tasks })
			stop()
			if err := cut.Ping(t.Context()); err != nil {
				t.Errorf("an outage of Postgres is reported as one of RabbitMQ: %v", err)
			}
			// The two batches in progress may have begun together.
			if again.Load() > 1 {
				t.Errorf("the handler was called %d times after the first failure", again.Load())
			}
			if most := int64(2 * 4); !dlq && counted.Load() > most {
				t.Errorf("%d tries counted, want at most the %d of the batches that failed", counted.Load(), most)
			}
			before := calls.Load()
			away.Store(false)
			publish()
			waittest.Until(t, "a task after the outage", func() bool { return calls.Load() > before })
		})
	}
}

// publishing returns a function that publishes a task to the main queue or to the DLQ.
func (s fixture) publishing(dlq bool) func() {
	p, channel := s.publisher(), rabbitmqtest.Channel(s.t, s.url)
	return func() {
		if !dlq {
			s.publish(p)
			return
		}
		task := s.task()
		err := channel.PublishWithContext(s.t.Context(), "", s.topology.DLQ.Name, true, false, amqp.Publishing{MessageId: task.ID, Body: task.Payload})
		if err != nil {
			s.t.Fatal(err)
		}
	}
}
