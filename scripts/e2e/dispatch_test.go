package e2e_test

import (
	"context"
	"fmt"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	"github.com/redis/go-redis/v9"

	"email-gateway/scripts/sessim"
	"email-gateway/shared/crashpoint"
)

// metric returns the sum of a program's series with this name and all of these label values.
func (p *program) metric(name string, values ...string) (sum float64) {
	p.t.Helper()
	_, text := fetch(p.t, p.metricsURL())
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(strings.NewReader(text))
	if err != nil {
		p.t.Fatalf("the metrics of %s: %v", p.name, err)
	}
	for _, m := range families[name].GetMetric() {
		labels := make(map[string]bool)
		for _, l := range m.GetLabel() {
			labels[l.GetValue()] = true
		}
		matches := true
		for _, v := range values {
			matches = matches && labels[v]
		}
		if matches {
			sum += m.GetCounter().GetValue() + m.GetGauge().GetValue()
		}
	}
	return sum
}

// lostTasks returns the number of tasks that the dispatcher found lost.
func (p *program) lostTasks() float64 {
	p.t.Helper()
	return p.metric("outbox_lost_retries_total") + p.metric("outbox_rescued_total", "lost")
}

// smallWindow limits SES to 100 emails per second, so that one batch may fill the whole window.
func (s *system) smallWindow() {
	s.t.Helper()
	s.set(func(st *sessim.Settings) { st.MaxSendRate = 100 })
	s.restartWorker(nil)
}

// rescued is the maximum time until an email whose task was never published is on its queue again.
const rescued = 10 * time.Second

// rescuedBeside is rescued on a machine that needs this long without a fault. The next listing that finds all emails
// comes after 30 s.
func rescuedBeside(undisturbed time.Duration) time.Duration {
	return rescued + 5*time.Second + 5*undisturbed
}

// sentWithin calls resume and returns how long it takes until n emails are SENT.
func (s *system) sentWithin(n int, what func()) time.Duration {
	s.t.Helper()
	begun := time.Now()
	what()
	s.awaitAll(n, "SENT")
	return time.Since(begun)
}

// The dispatcher crashes while it publishes twenty emails. Published ones are sent; the others are on the queue
// within 10 s of its restart, plus what emails take without a crash. Each email is sent once, and none counts as
// lost.
func TestCrashPoints_Dispatch(t *testing.T) {
	t.Parallel()
	s := startSystem(t, nil)
	s.smallWindow()
	const n, all = 20, 21
	s.dispatcher.stop()
	for i := range n {
		s.send(fmt.Sprintf("ileso%d@example.com", i), nil)
	}
	restart := func() { s.dispatcher = startProgram(t, "dispatcher", s.env) }
	sent := n
	undisturbed := s.sentWithin(sent, restart)
	for _, c := range []struct {
		point crashpoint.Point
		nth   int
		tasks int // at least so many are on the queue; all = those that were taken
	}{
		{crashpoint.DispatchTaken, 1, 0},
		{crashpoint.DispatchQueued, 1, 1},
		{crashpoint.DispatchQueued, n/2 + 1, n/2 + 1},
		{crashpoint.DispatchPublished, 1, all},
		{crashpoint.DispatchRecorded, 1, all},
	} {
		t.Run(fmt.Sprintf("%s:%d", c.point, c.nth), func(t *testing.T) {
			s.dispatcher.stop()
			for i := range n {
				s.send(fmt.Sprintf("cliente%d@example.com", i), nil)
			}
			s.dispatcher = s.startCrashing("dispatcher", c.point, c.nth, nil)
			s.dispatcher.awaitCrash(c.point)
			taken := n - s.count("SELECT count(*) FROM email_outbox WHERE status = 'PENDING'")
			if taken == 0 {
				t.Error("no email is ENQUEUED: the batch was not committed before it was published")
			}
			s.awaitRequests(int64(sent + min(c.tasks, taken)))
			left := taken
			if c.tasks > 0 { // concurrent publishers may have finished
				left = s.count("SELECT count(*) FROM email_outbox WHERE status = 'ENQUEUED'")
			}
			sent += n
			if took := s.sentWithin(sent, restart); took > rescuedBeside(undisturbed) {
				t.Errorf("sent after %s; without a crash it takes %s", took, undisturbed)
			}
			s.sentOnce(sent)
			if lost := s.dispatcher.lostTasks(); lost != 0 {
				t.Errorf("%g tasks count as lost", lost)
			}
			if got := s.dispatcher.metric("outbox_rescued_total", "unpublished"); got > float64(left) || c.tasks == 0 && got != float64(left) {
				t.Errorf("%g emails count as unpublished, want %d", got, left)
			}
		})
	}
	s.awaitQuietQueues()
	s.sentOnce(sent)
}

// A dispatcher is frozen (SIGSTOP) between its commit and its first task, for 15 s by default (DISPATCHER_FROZEN sets
// another time). Another dispatcher publishes the emails within 10 s. When the first one continues, it neither
// releases them nor sends them again.
func TestDispatcherFrozen(t *testing.T) {
	t.Parallel()
	frozen := 15 * time.Second
	if text := os.Getenv("DISPATCHER_FROZEN"); text != "" {
		var err error
		if frozen, err = time.ParseDuration(text); err != nil {
			t.Fatal(err)
		}
	}
	s := startSystem(t, nil)
	s.smallWindow()
	const n = 20
	s.dispatcher.stop()
	for i := range n {
		s.send(fmt.Sprintf("cliente%d@example.com", i), nil)
	}
	restart := func() { s.dispatcher = startProgram(t, "dispatcher", s.env) }
	undisturbed := s.sentWithin(n, restart)
	s.dispatcher.stop()
	for i := range n {
		s.send(fmt.Sprintf("preso%d@example.com", i), nil)
	}
	first := s.startCrashing("dispatcher", crashpoint.DispatchTaken, 1, map[string]string{"CRASH_WITH": "STOP"})
	first.awaitFreeze(crashpoint.DispatchTaken)
	begun := time.Now()
	if took := s.sentWithin(2*n, restart); took > rescuedBeside(undisturbed) {
		t.Errorf("sent after %s; beside no frozen dispatcher it takes %s", took, undisturbed)
	}
	if lost, unpublished := s.dispatcher.lostTasks(), s.dispatcher.metric("outbox_rescued_total", "unpublished"); lost != 0 || unpublished != n {
		t.Errorf("%g tasks count as lost and %g as unpublished, want 0 and %d", lost, unpublished, n)
	}
	<-time.After(time.Until(begun.Add(frozen))) // the fault itself
	first.signal(syscall.SIGCONT)
	// It continues like any other dispatcher.
	s.dispatcher.stop()
	for i := range n {
		s.send(fmt.Sprintf("outro%d@example.com", i), nil)
	}
	s.awaitAll(3*n, "SENT")
	s.awaitQuietQueues()
	s.sentOnce(3 * n)
	if lost := first.lostTasks(); lost != 0 {
		t.Errorf("%g tasks count as lost", lost)
	}
	first.stop()
}

// Retries whose lane is paused and resumed while they wait, and unknown outcomes whose wait ends, are not lost tasks.
// Tasks that a flushed Redis forgot are lost, and are repaired.
func TestLostTasks(t *testing.T) {
	t.Parallel()
	s := startSystem(t, map[string]string{"EMAIL_BACKOFF": "2s", "SES_FEEDBACK_WINDOW": "1s", "SES_CONFIGURATION_SET": "gateway"})
	const n = 15 // fewer than open the circuit breaker
	for _, fault := range []string{"throttle", "internal-failure"} {
		if err := s.ses.Inject(sessim.Rule{Fault: fault, Times: n}); err != nil {
			t.Fatal(err)
		}
		asked := s.ses.Summary().Requests
		for i := range n {
			s.send(fmt.Sprintf("%s%d@example.com", fault, i), nil)
		}
		s.awaitRequests(asked + n/2)
		s.gatewayctl("lane", "pause", "--company", "Acme", "--reason", "a drill")
		eventually(t, func() error { // the tasks return to a paused lane and are dropped
			if held := s.count("SELECT count(*) FROM email_outbox WHERE enqueued_at IS NOT NULL AND processed_at IS NULL AND status <> 'PROCESSING'"); held != 0 {
				return fmt.Errorf("%d emails still have a task: %s", held, s.statusCounts())
			}
			return nil
		})
		s.gatewayctl("lane", "resume", "--company", "Acme")
		s.clearFaults()
		eventually(t, func() error {
			if open := s.count("SELECT count(*) FROM email_outbox WHERE processed_at IS NULL"); open != 0 {
				return fmt.Errorf("%d emails are not final: %s", open, s.statusCounts())
			}
			return nil
		})
	}
	if lost := s.dispatcher.lostTasks(); lost != 0 {
		t.Errorf("%g tasks count as lost, and none was", lost)
	}

	s.restartWorker(map[string]string{"EMAIL_BACKOFF": "10s"}) // so that retries still wait when Redis is flushed
	if err := s.ses.Inject(sessim.Rule{Fault: "throttle", Times: n}); err != nil {
		t.Fatal(err)
	}
	before := s.count("SELECT count(*) FROM email_outbox")
	for i := range n {
		s.send(fmt.Sprintf("perdido%d@example.com", i), nil)
	}
	waiting := 0
	eventually(t, func() error {
		waiting = s.count("SELECT count(*) FROM email_outbox WHERE status = 'RETRY_SCHEDULED' AND enqueued_at IS NOT NULL")
		if waiting == 0 {
			return fmt.Errorf("no retry waits on the queue: %s", s.statusCounts())
		}
		return nil
	})
	if err := s.redisClient().FlushAll(t.Context()).Err(); err != nil {
		t.Fatal(err)
	}
	s.awaitAll(before+n, "SENT")
	if lost := s.dispatcher.lostTasks(); lost == 0 {
		t.Errorf("no task counts as lost, and at least some of %d were", waiting)
	}
}

// With a WORKER_CONCURRENCY of many times what the rate needs, the window is as long as the rate needs: an email of another tenant
// waits for seconds behind thousands at 14/s, and not until most of them are sent.
func TestWindow_FixedConcurrency(t *testing.T) {
	t.Parallel()
	const n, rate, concurrency = 2_000, 14, 256
	s := startSystem(t, map[string]string{"WORKER_CONCURRENCY": fmt.Sprint(concurrency)})
	s.set(func(st *sessim.Settings) { st.MaxSendRate = rate })
	s.restartWorker(nil)
	quiet := *s
	quiet.key = s.newKey("Quiet", "billing@quiet.example")
	alone, _ := quiet.latency()
	eventually(t, func() error {
		if window := s.dispatcher.metric("queue_window_tasks", "email:send"); window > 4*rate {
			return fmt.Errorf("the window is %g tasks", window)
		}
		return nil
	})
	s.acceptMany(n)
	_, beside := quiet.latency()
	t.Logf("a quiet tenant waited %s, alone %s", beside, alone)
	if window := s.dispatcher.metric("queue_window_tasks", "email:send"); beside > 4*time.Second+5*alone {
		t.Errorf("nine of ten emails of a quiet tenant waited up to %s beside the others, %s alone; the window is %g tasks", beside, alone, window)
	}
	if left := s.count("SELECT count(*) FROM email_outbox WHERE status = 'PENDING'"); left < n/4 {
		t.Errorf("only %d emails were left: the quiet tenant did not wait beside others", left)
	}
}

// SES accepts 20 emails per second and refuses the rest of 5,000. Two dispatchers keep the tasks of all states within
// the window plus the concurrency, and another tenant's emails wait at most 2 s once the rate is reduced, plus what
// they take alone.
func TestThrottledAccount(t *testing.T) {
	t.Parallel()
	const n, rate, accepted, concurrency = 5_000, 100, 20, 10
	s := startSystem(t, map[string]string{"SES_MAX_SEND_RATE": fmt.Sprint(rate), "WORKER_CONCURRENCY": fmt.Sprint(concurrency)})
	s.set(func(st *sessim.Settings) {
		st.GetAccount, st.MaxSendRate, st.EnforceRate = "404", accepted, true // the worker takes its own setting for the rate
	})
	s.restartWorker(nil)
	other := startProgram(t, "dispatcher", s.env)
	quiet := *s
	quiet.key = s.newKey("Quiet", "billing@quiet.example")
	alone, _ := quiet.latency()

	client := s.redisClient()
	ctx, end := context.WithCancel(t.Context())
	defer end()
	most, stopped := 0, make(chan struct{})
	go func() {
		defer close(stopped)
		for ctx.Err() == nil {
			pipe := client.TxPipeline() // one instant
			counts := []*redis.IntCmd{
				pipe.LLen(ctx, "asynq:{email:send}:pending"), pipe.LLen(ctx, "asynq:{email:send}:active"),
				pipe.ZCard(ctx, "asynq:{email:send}:scheduled"), pipe.ZCard(ctx, "asynq:{email:send}:retry"),
			}
			if _, err := pipe.Exec(ctx); err != nil {
				continue
			}
			sum := 0
			for _, c := range counts {
				sum += int(c.Val())
			}
			most = max(most, sum)
		}
	}()
	s.acceptMany(n)
	eventually(t, func() error {
		window, tasks := s.dispatcher.metric("queue_window_tasks", "email:send"), s.dispatcher.metric("queue_tasks", "email:send")
		if window > 2*concurrency+5 || tasks > window {
			return fmt.Errorf("the window is still %g tasks, of which %g are used", window, tasks)
		}
		return nil
	})
	_, beside := quiet.latency()
	if beside > 2*time.Second+5*alone {
		t.Errorf("nine of ten emails of a quiet tenant waited up to %s beside the others, %s alone", beside, alone)
	}
	end()
	<-stopped
	t.Logf("at most %d tasks; the quiet tenant waited %s, alone %s", most, beside, alone)
	if limit := rate + concurrency; most > limit {
		t.Errorf("%d tasks on the queue, want %d at most", most, limit)
	}
	if lost := s.dispatcher.lostTasks() + other.lostTasks(); lost != 0 {
		t.Errorf("%g tasks count as lost", lost)
	}
	if failed := s.count("SELECT count(*) FROM email_outbox WHERE status = 'FAILED'"); failed != 0 {
		t.Errorf("%d emails FAILED", failed)
	}
}
