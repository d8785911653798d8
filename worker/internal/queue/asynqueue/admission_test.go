package asynqueue_test

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/redis/go-redis/v9"

	"email-gateway/shared/email"
	"email-gateway/shared/waittest"
	"email-gateway/worker/internal/breaker"
	"email-gateway/worker/internal/inflight"
	"email-gateway/worker/internal/pace"
	"email-gateway/worker/internal/queue"
	"email-gateway/worker/internal/queue/asynqueue"
	"email-gateway/worker/internal/queue/redistest"
)

// paced is a consumer that admits tasks at a rate, on its own Redis.
type paced struct {
	redis     *redis.Client
	publisher *asynqueue.Publisher
	pacer     *pace.Pacer
	consumer  *asynqueue.Consumer
	asked     *atomic.Int64 // how often a Server asked for an admission
}

// asking counts the requests for an admission.
type asking struct {
	*inflight.Limiter
	asked *atomic.Int64
}

func (a asking) Admit(ctx context.Context, others int, pending func() bool) (time.Time, error) {
	a.asked.Add(1)
	return a.Limiter.Admit(ctx, others, pending)
}

func newPaced(t *testing.T, perSecond float64, limit int, handler queue.Handler) paced {
	t.Helper()
	server := redistest.Start(t)
	conn, client := parse(t, server.URL), open[*redis.Client](t, server.URL)
	p := paced{redis: client, publisher: asynqueue.NewPublisher(conn), pacer: pace.New(client, perSecond), asked: new(atomic.Int64)}
	t.Cleanup(func() { _ = p.publisher.Close() })
	limiter := inflight.New(inflight.Params{
		Log: quiet(), Pacer: p.pacer, Suspension: new(breaker.Suspension), Fixed: limit, InFlight: func(int) {}, Registry: prometheus.NewRegistry(),
	})
	p.consumer = asynqueue.NewConsumer(asynqueue.ConsumerConfig{
		Log: quiet(), Conn: conn, Handler: handler, Concurrency: limit, Admission: asking{limiter, p.asked},
	})
	return p
}

func (p paced) publish(t *testing.T, name string, tasks int) {
	t.Helper()
	for range tasks {
		if _, err := p.publisher.Publish(t.Context(), queue.Task{ID: uuid.NewString(), Queue: name, Payload: []byte("{}")}); err != nil {
			t.Fatal(err)
		}
	}
}

// start starts the consumer; stop stops it.
func (p paced) start(t *testing.T) (stop func()) {
	t.Helper()
	if err := p.consumer.Start(t.Context(), func(err error) { t.Error(err) }); err != nil {
		t.Fatal(err)
	}
	var stopped atomic.Bool
	stop = func() {
		if stopped.Swap(true) {
			return
		}
		ctx, cancel := context.WithTimeout(context.Background(), 3*time.Minute)
		defer cancel()
		if err := p.consumer.Stop(ctx); err != nil {
			t.Errorf("stop: %v", err)
		}
	}
	t.Cleanup(stop)
	return stop
}

// tasks counts the tasks of all queues in a state that is a list.
func (p paced) tasks(t *testing.T, state string) (n int64) {
	t.Helper()
	for _, name := range email.Queues() {
		more, err := p.redis.LLen(context.WithoutCancel(t.Context()), "asynq:{"+name+"}:"+state).Result()
		if err != nil {
			t.Fatal(err)
		}
		n += more
	}
	return n
}

func reaches(t *testing.T, n *atomic.Int64, want int64) {
	t.Helper()
	waittest.Until(t, fmt.Sprintf("%d handled", want), func() bool { return n.Load() == want })
}

// exhaust uses the bucket's initial token. At 0.001/s no other one arrives in time.
func (p paced) exhaust(t *testing.T) {
	t.Helper()
	if err := p.pacer.Wait(t.Context(), 1); err != nil {
		t.Fatal(err)
	}
}

func TestAdmission_NoActiveTasksWithoutTokens(t *testing.T) {
	t.Parallel()
	var handled atomic.Int64
	p := newPaced(t, 0.001, 10, func(context.Context, queue.Task) error { handled.Add(1); return nil })
	p.exhaust(t)
	p.publish(t, email.QueueNormal, 5)
	p.start(t)
	waittest.Until(t, "a Server waits", func() bool { return p.asked.Load() > 0 })
	for range 50 {
		if active, pending := p.tasks(t, "active"), p.tasks(t, "pending"); active != 0 || pending != 5 {
			t.Fatalf("%d tasks active and %d pending, want 0 and 5", active, pending)
		}
	}
	p.pacer.SetRate(1000)
	reaches(t, &handled, 5)
	waittest.Until(t, "no task left", func() bool { return p.tasks(t, "active")+p.tasks(t, "pending") == 0 })
}

func TestAdmission_StopWhileWaiting(t *testing.T) {
	t.Parallel()
	var handled atomic.Int64
	p := newPaced(t, 0.001, 100, func(context.Context, queue.Task) error { handled.Add(1); return nil })
	p.exhaust(t)
	p.publish(t, email.QueueNormal, 5)
	stop := p.start(t)
	waittest.Until(t, "both Servers wait", func() bool { return p.asked.Load() > 1 })
	stop()
	if active, pending := p.tasks(t, "active"), p.tasks(t, "pending"); active != 0 || pending != 5 || handled.Load() != 0 {
		t.Errorf("%d tasks active, %d pending and %d handled after the stop, want 0, 5 and 0", active, pending, handled.Load())
	}
}

// The number of active tasks is the configured one, however many Servers that takes.
func TestAdmission_Fixed(t *testing.T) {
	t.Parallel()
	for _, limit := range []int{1, 3, 150} {
		t.Run(fmt.Sprint(limit), func(t *testing.T) {
			t.Parallel()
			var begun atomic.Int64
			finish := make(chan struct{})
			p := newPaced(t, 1e6, limit, func(context.Context, queue.Task) error {
				begun.Add(1)
				<-finish
				return nil
			})
			p.publish(t, email.QueueNormal, 2*limit)
			p.start(t)
			reaches(t, &begun, int64(limit))
			for range 50 {
				if active := p.tasks(t, "active"); active != int64(limit) || begun.Load() != active {
					t.Fatalf("%d tasks active and %d begun, want %d", active, begun.Load(), limit)
				}
			}
			close(finish)
			reaches(t, &begun, int64(2*limit))
		})
	}
}

// An empty queue takes no tokens from the others.
func TestAdmission_EmptyQueueUsesNoTokens(t *testing.T) {
	t.Parallel()
	var handled atomic.Int64
	p := newPaced(t, 200, 10, func(context.Context, queue.Task) error { handled.Add(1); return nil })
	p.publish(t, email.QueueNormal, 100)
	p.publish(t, email.QueueLow, 100)
	p.start(t)
	reaches(t, &handled, 200)
}

// An idle worker looks at its queues without tokens: all idle workers together would hold more than may be sent at once.
func TestAdmission_IdleWorkerHoldsNoTokens(t *testing.T) {
	t.Parallel()
	var handled atomic.Int64
	p := newPaced(t, 1, 10, func(context.Context, queue.Task) error { handled.Add(1); return nil })
	p.start(t)
	const bucket = "email-gateway:pace"
	waittest.Until(t, "a hundred looks", func() bool { return p.asked.Load() > 100 })
	if n, err := p.redis.Exists(t.Context(), bucket).Result(); n != 0 || err != nil {
		t.Errorf("tokens were taken for empty queues, %v", err)
	}
	p.publish(t, email.QueueLow, 1)
	reaches(t, &handled, 1)
	if n, err := p.redis.Exists(t.Context(), bucket).Result(); n != 1 || err != nil {
		t.Errorf("no token was taken for a task, %v", err)
	}
}

// The other recipients of an email delay the emails after it.
func TestAdmission_RateCountsRecipients(t *testing.T) {
	t.Parallel()
	const emails, recipients, perSecond = 30, 11, 110
	var handled atomic.Int64
	var p paced
	p = newPaced(t, perSecond, 10, func(context.Context, queue.Task) error {
		p.pacer.Borrow(recipients - 1)
		handled.Add(1)
		return nil
	})
	p.publish(t, email.QueueNormal, emails)
	started := time.Now()
	p.start(t)
	reaches(t, &handled, emails)
	// The bucket starts with 11 tokens, and up to ten emails in flight are admitted before any of
	// them borrows tokens.
	least := time.Duration(float64((emails-10)*recipients-11) / perSecond * float64(time.Second))
	if took := time.Since(started); took < least {
		t.Errorf("%d recipients in %s, want at least %s at %d/s", emails*recipients, took, least, perSecond)
	}
}
