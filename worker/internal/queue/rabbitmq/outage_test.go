package rabbitmq_test

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"email-gateway/shared/logtest"
	"email-gateway/shared/waittest"
	"email-gateway/worker/internal/queue"
	"email-gateway/worker/internal/queue/queuetest"
	"email-gateway/worker/internal/queue/rabbitmq"
	"email-gateway/worker/internal/queue/rabbitmqtest"
)

// TestOutage causes one failure after the other on a private broker.
func TestOutage(t *testing.T) {
	t.Parallel()
	server := rabbitmqtest.Start(t)
	for _, test := range []struct {
		name string
		run  func(*testing.T, fixture, rabbitmqtest.Server)
	}{
		{"killed", killed},
		{"memory full", memoryFull},
		{"frozen", frozen},
	} {
		t.Run(test.name, func(t *testing.T) {
			topology := rabbitmq.Recipients(500*time.Millisecond, 3).WithPrefix(test.name + ".")
			test.run(t, fixture{t: t, url: server.URL, conn: parse(t, server.URL), topology: topology, log: &logtest.Buffer{}}, server)
		})
	}
}

// killed: the broker dies while tasks are published, consumed and retried. Every confirmed task is
// consumed, and after the restart every task is confirmed.
func killed(t *testing.T, s fixture, server rabbitmqtest.Server) {
	p := s.publisher()
	var seen sync.Map
	var handled atomic.Int64
	s.consume(func(_ context.Context, tasks []queue.Task) []error {
		errs := make([]error, len(tasks))
		for i, task := range tasks {
			switch n := handled.Add(1); {
			case n%5 == 0 && !task.LastTry:
				errs[i] = &queue.RetryLater{Reason: "once more"}
			default:
				seen.Store(task.ID, true)
			}
		}
		return errs
	}, func(c *rabbitmq.ConsumerConfig) { c.Concurrency, c.BatchSize, c.BatchWait = 2, 20, 20*time.Millisecond })

	var confirmed sync.Map
	var n, failures atomic.Int64
	publishing, stop := context.WithCancel(t.Context())
	defer stop()
	var wg sync.WaitGroup
	for range 16 {
		wg.Go(func() {
			for publishing.Err() == nil {
				task := s.task()
				for { // retry until confirmed, as the dispatcher does
					ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
					_, err := p.Publish(ctx, task)
					cancel()
					if err == nil {
						break
					}
					failures.Add(1)
					select {
					case <-time.After(100 * time.Millisecond):
					case <-t.Context().Done():
						return
					}
				}
				n.Add(1)
				confirmed.Store(task.ID, true)
			}
		})
	}
	waittest.Until(t, "some confirmed", func() bool { return n.Load() > 300 })
	server.Kill()
	waittest.Until(t, "failures", func() bool { return failures.Load() > 0 })
	if err := p.Ping(within(t, time.Second)); err == nil {
		t.Error("ping of a dead broker succeeds")
	}
	server.Start()
	before := n.Load()
	waittest.Until(t, "more confirmed", func() bool { return n.Load() > before+300 })
	stop()
	wg.Wait()
	missing := 0
	defer func() {
		t.Logf("%d confirmed, %d failures, %d deliveries, %d not seen", n.Load(), failures.Load(), handled.Load(), missing)
	}()
	waittest.Until(t, "everything consumed", func() bool {
		missing = 0
		confirmed.Range(func(id, _ any) bool {
			if _, ok := seen.Load(id); !ok {
				missing++
			}
			return true
		})
		return missing == 0
	})
	for _, text := range []string{"connection to rabbitmq lost", "connected to rabbitmq again"} {
		if told := s.log.Count(text); told == 0 || told > 6 {
			t.Errorf("%q was logged %d times", text, told)
		}
	}
}

// memoryFull: the broker accepts no messages, and reports it after the first. Callers time out as
// requested, queued tasks are consumed, and no delayed message is published twice.
func memoryFull(t *testing.T, s fixture, server rabbitmqtest.Server) {
	p := s.publisher()
	s.publish(p)
	server.FillMemory()
	for range 3 {
		ctx := within(t, 500*time.Millisecond)
		start := time.Now()
		if _, err := p.Publish(ctx, s.task()); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("published while the memory alarm is active: %v", err)
		}
		if took := time.Since(start); took > time.Minute {
			t.Errorf("publish took %s", took)
		}
	}
	if p.Status().Blocked == "" || p.Ping(t.Context()) == nil {
		t.Errorf("the alarm is not reported: %+v", p.Status())
	}
	if n, err := queuetest.Depth(t.Context(), p, s.topology.Main.Name); err != nil || n != 1 {
		t.Errorf("depth %d, error %v", n, err)
	}
	tasks := make(deliveries)
	_, stop := s.consume(tasks.handle)
	tasks.next(t).all(&queue.RetryLater{Reason: "cannot be passed on now"})

	server.FreeMemory()
	if _, err := p.Publish(within(t, timeout), s.task()); err != nil {
		t.Errorf("after the alarm: %v", err)
	}
	// The last one, the one that waited to be republished, and the one that triggered the alarm
	// report: it had already been written.
	for range 3 {
		tasks.next(t).all(nil)
	}
	s.expect(s.topology.Main.Name, 0)
	stop()
	if s.log.Count("accepts no messages") == 0 || s.log.Count("accepts messages again") == 0 {
		t.Error("the alarm is not logged")
	}
}

// frozen: the broker keeps its connections and does not respond.
func frozen(t *testing.T, s fixture, server rabbitmqtest.Server) {
	p := s.publisher()
	s.publish(p)
	tasks := make(deliveries)
	_, stop := s.consume(tasks.handle)
	unacknowledged := tasks.next(t)
	server.Freeze()
	thaw := sync.OnceFunc(server.Thaw)
	t.Cleanup(thaw)
	for name, ask := range map[string]func(context.Context) error{
		"publish": func(ctx context.Context) error { _, err := p.Publish(ctx, s.task()); return err },
		"depth":   func(ctx context.Context) error { _, err := queuetest.Depth(ctx, p, s.topology.Main.Name); return err },
		"ping":    p.Ping,
	} {
		start := time.Now()
		if err := ask(within(t, 300*time.Millisecond)); err == nil {
			t.Errorf("%s: a frozen broker answered", name)
		}
		if took := time.Since(start); took > time.Minute {
			t.Errorf("%s took %s", name, took)
		}
	}
	unacknowledged.all(nil)
	stop() // returns although there is no closing handshake
	start := time.Now()
	_ = p.Close()
	if took := time.Since(start); took > time.Minute {
		t.Errorf("closing took %s", took)
	}
	thaw()
	again := s.publisher()
	if _, err := again.Publish(within(t, timeout), s.task()); err != nil {
		t.Errorf("after the thaw: %v", err)
	}
}
