package rabbitmq_test

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	amqp "github.com/rabbitmq/amqp091-go"

	"email-gateway/shared/waittest"
	"email-gateway/worker/internal/queue/rabbitmq"
	"email-gateway/worker/internal/queue/rabbitmqtest"
)

// The names are a contract with operators and with other publishing programs.
func TestTopology_Names(t *testing.T) {
	t.Parallel()
	got := []rabbitmq.Topology{rabbitmq.Mailing(), rabbitmq.Recipients(5*time.Second, 3)}
	want := []rabbitmq.Topology{
		{
			Exchanges: []rabbitmq.Exchange{{Name: "mailing.exchange", Kind: "topic"}},
			Main:      rabbitmq.Queue{Name: "mailing.jobs.process", Exchange: "mailing.exchange", Key: "mailing.process"},
			Retries: []rabbitmq.Queue{
				{Name: "mailing.retry.1", Key: "mailing.retry.1", TTL: 10 * time.Second},
				{Name: "mailing.retry.2", Key: "mailing.retry.2", TTL: 30 * time.Second},
			},
			DLQ:        rabbitmq.Queue{Name: "mailing.jobs.dlq", Key: "mailing.jobs.dlq"},
			MaxRetries: 2,
		},
		{
			Exchanges: []rabbitmq.Exchange{
				{Name: "recipients_exchange", Kind: "direct"},
				{Name: "recipients_retry_exchange", Kind: "direct"},
				{Name: "recipients_dlx", Kind: "direct"},
			},
			Main: rabbitmq.Queue{Name: "recipients_queue", Exchange: "recipients_exchange", Key: "recipients_queue"},
			Retries: []rabbitmq.Queue{
				{Name: "recipients_retry_10s", Exchange: "recipients_retry_exchange", Key: "recipients_retry_10s", TTL: 5 * time.Second},
			},
			DLQ:        rabbitmq.Queue{Name: "recipients_dlq", Exchange: "recipients_dlx", Key: "recipients_dlq"},
			MaxRetries: 3,
		},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
}

// A queue that an operator created with another TTL is used unchanged, and everything else is
// declared.
func TestDeclare_ExistingQueueDiffers(t *testing.T) {
	t.Parallel()
	s := mailing(t)
	theirs := s.topology.Retries[0].Name
	if _, err := rabbitmqtest.Channel(t, s.url).QueueDeclare(theirs, true, false, false, false, amqp.Table{
		"x-queue-type": "quorum", "x-overflow": "reject-publish", "x-dead-letter-strategy": "at-least-once",
		"x-dead-letter-exchange": s.topology.Main.Exchange, "x-dead-letter-routing-key": s.topology.Main.Key, "x-message-ttl": int64(1234),
	}); err != nil {
		t.Fatal(err)
	}
	for n := 1; n <= 2; n++ { // every connection logs it
		p := s.publisher()
		s.publish(p)
		status := p.Status()
		if len(status.Mismatches) != 1 || status.Mismatches[0].Part != "queue "+theirs || !strings.Contains(status.Mismatches[0].Problem, "x-message-ttl") {
			t.Errorf("mismatches: %+v", status.Mismatches)
		}
		if told := s.log.Count("level=ERROR"); told != n || s.log.Count("1234") != n {
			t.Errorf("%d connections logged it in %d lines", n, told)
		}
		_ = p.Close()
	}
	inspector := rabbitmq.NewInspector(s.logger(), s.conn, s.topology)
	t.Cleanup(func() { _ = inspector.Close() })
	states, err := inspector.Inspect(t.Context())
	if err != nil || len(states) != 4 || states[s.topology.Main.Name].Messages != 2 {
		t.Errorf("queues: %v, error %v", states, err)
	}
	// The existing retry queue is used.
	tasks := make(deliveries)
	s.consume(tasks.handle)
	for range 2 {
		tasks.next(t).all(errFault)
	}
	s.expect(theirs, 2)
	for range 2 {
		tasks.next(t).all(nil)
	}
}

// A DLQ has no delivery limit: no message is dropped because it was requeued.
func TestDLQ_NoDeliveryLimit(t *testing.T) {
	t.Parallel()
	s := recipients(t)
	s.publish(s.publisher())
	_, stop := s.consume(deadly)
	s.expect(s.topology.DLQ.Name, 1)
	stop()
	channel := rabbitmqtest.Channel(t, s.url)
	for n := range 30 {
		waittest.Until(t, "the message", func() bool {
			d, ok, err := channel.Get(s.topology.DLQ.Name, false)
			if err != nil {
				t.Fatalf("after %d returns: %v", n, err)
			}
			if ok {
				_ = d.Nack(false, true)
			}
			return ok
		})
	}
	s.expect(s.topology.DLQ.Name, 1)
}

// A task that kills its consumers is redelivered twenty times and then goes to the DLQ.
func TestDeliveryLimit(t *testing.T) {
	t.Parallel()
	s := recipients(t)
	s.publish(s.publisher())
	channel := rabbitmqtest.Channel(t, s.url)
	deliveries, err := channel.Consume(s.topology.Main.Name, "", false, false, false, false, nil)
	if err != nil {
		t.Fatal(err)
	}
	for range 21 {
		d := <-deliveries
		_ = d.Nack(false, true)
	}
	s.expect(s.topology.DLQ.Name, 1)
	s.expect(s.topology.Main.Name, 0)
}

func TestInspector(t *testing.T) {
	t.Parallel()
	s := recipients(t)
	inspector := rabbitmq.NewInspector(s.logger(), s.conn, s.topology)
	t.Cleanup(func() { _ = inspector.Close() })
	states, err := inspector.Inspect(t.Context())
	if err != nil || len(states) != 0 {
		t.Errorf("before anything was declared: %v, error %v", states, err)
	}
	s.publish(s.publisher())
	_, stop := s.consume(deadly)
	s.expect(s.topology.DLQ.Name, 1)
	main, retry, dlq := s.topology.Main.Name, s.topology.Retries[0].Name, s.topology.DLQ.Name
	want := map[string]rabbitmq.QueueState{main: {Consumers: 1}, retry: {}, dlq: {Messages: 1}}
	waittest.Until(t, "one consumer", func() bool {
		states, err = inspector.Inspect(t.Context())
		return err == nil && cmp.Equal(want, states)
	})
	if err := inspector.Ping(t.Context()); err != nil {
		t.Error(err)
	}
	stop()
}
