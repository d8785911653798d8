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
	"email-gateway/shared/store/storetest"
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
func smallWindow(s *system) {
	s.t.Helper()
	changeSettings(s.t, s.ses, func(st *sessim.Settings) { st.MaxSendRate = 100 })
	s.restartWorker(nil)
}

// The dispatcher crashes while it publishes twenty emails. Published ones are sent; the others are rescued as
// unpublished after its restart. Each email is sent once, and none counts as lost.
func TestCrashPoints_Dispatch(t *testing.T) {
	t.Parallel()
	s := startSystem(t, nil)
	smallWindow(s)
	const n, all = 20, 21
	sent := 0
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
			taken := n - storetest.Ask[int](s.t, s.db, "SELECT count(*) FROM email_outbox WHERE status = 'PENDING'")
			if taken == 0 {
				t.Error("no email is ENQUEUED: the batch was not committed before it was published")
			}
			s.awaitRequests(int64(sent + min(c.tasks, taken)))
			left := taken
			if c.tasks > 0 { // concurrent publishers may have finished
				left = storetest.Ask[int](s.t, s.db, "SELECT count(*) FROM email_outbox WHERE status = 'ENQUEUED'")
			}
			sent += n
			s.dispatcher = startProgram(t, "dispatcher", s.env)
			s.awaitAll(sent, "SENT")
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
// another time). Another dispatcher publishes the emails while the first one is frozen. When it continues, it neither releases
// them nor sends them again.
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
	smallWindow(s)
	const n = 20
	s.dispatcher.stop()
	for i := range n {
		s.send(fmt.Sprintf("preso%d@example.com", i), nil)
	}
	first := s.startCrashing("dispatcher", crashpoint.DispatchTaken, 1, map[string]string{"CRASH_WITH": "STOP"})
	first.awaitFreeze(crashpoint.DispatchTaken)
	start := time.Now()
	s.dispatcher = startProgram(t, "dispatcher", s.env)
	s.awaitAll(n, "SENT")
	if lost, unpublished := s.dispatcher.lostTasks(), s.dispatcher.metric("outbox_rescued_total", "unpublished"); lost != 0 || unpublished != n {
		t.Errorf("%g tasks count as lost and %g as unpublished, want 0 and %d", lost, unpublished, n)
	}
	<-time.After(time.Until(start.Add(frozen))) // the fault itself
	first.signal(syscall.SIGCONT)
	// It continues like any other dispatcher.
	s.dispatcher.stop()
	for i := range n {
		s.send(fmt.Sprintf("outro%d@example.com", i), nil)
	}
	s.awaitAll(2*n, "SENT")
	s.awaitQuietQueues()
	s.sentOnce(2 * n)
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
			if held := storetest.Ask[int](s.t, s.db, "SELECT count(*) FROM email_outbox WHERE enqueued_at IS NOT NULL AND processed_at IS NULL AND status <> 'PROCESSING'"); held != 0 {
				return fmt.Errorf("%d emails still have a task: %s", held, s.statusCounts())
			}
			return nil
		})
		s.gatewayctl("lane", "resume", "--company", "Acme")
		clearFaults(s)
		eventually(t, func() error {
			if open := storetest.Ask[int](s.t, s.db, "SELECT count(*) FROM email_outbox WHERE processed_at IS NULL"); open != 0 {
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
	before := storetest.Ask[int](s.t, s.db, "SELECT count(*) FROM email_outbox")
	for i := range n {
		s.send(fmt.Sprintf("perdido%d@example.com", i), nil)
	}
	waiting := 0
	eventually(t, func() error {
		waiting = storetest.Ask[int](s.t, s.db, "SELECT count(*) FROM email_outbox WHERE status = 'RETRY_SCHEDULED' AND enqueued_at IS NOT NULL")
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

// requestsAhead sends an email, and returns how many requests of other emails SES received between its acceptance and
// its own first request.
func requestsAhead(s *system, to string) int64 {
	s.t.Helper()
	id := s.send(to, nil)
	before, first := s.ses.Summary().Requests, int64(0)
	eventually(s.t, func() error {
		requests := s.ses.Requests(id)
		if len(requests) == 0 {
			return fmt.Errorf("not sent: %s", s.statusCounts())
		}
		first = requests[0].Seq
		return nil
	})
	return max(first-1-before, 0)
}

// With a WORKER_CONCURRENCY of many times what the rate needs, the window is as long as the rate needs: only some of
// thousands of emails are sent before one of another tenant that is accepted later.
func TestWindow_FixedConcurrency(t *testing.T) {
	t.Parallel()
	const n, rate, concurrency = 2_000, 14, 256
	s := startSystem(t, map[string]string{"WORKER_CONCURRENCY": fmt.Sprint(concurrency)})
	changeSettings(s.t, s.ses, func(st *sessim.Settings) { st.MaxSendRate = rate })
	s.restartWorker(nil)
	quiet := *s
	quiet.key = s.newKey("Quiet", "billing@quiet.example")
	eventually(t, func() error {
		quiet.send("ana@example.com", nil) // an idle dispatcher measures no window
		if window := s.dispatcher.metric("queue_window_tasks", "email:send"); window > 2*rate {
			return fmt.Errorf("the window is %g tasks", window)
		}
		return nil
	})
	acceptMany(s, n)
	s.awaitRequests(2 * rate)
	// A window of twice the concurrency would be sent first; this one has 2 s at most, and its dispatcher 14 s to take the
	// other tenant's email.
	if ahead := requestsAhead(&quiet, "ana@example.com"); ahead > concurrency {
		t.Errorf("%d emails were sent before that of a quiet tenant; the window is %g tasks", ahead, s.dispatcher.metric("queue_window_tasks", "email:send"))
	}
	if left := storetest.Ask[int](s.t, s.db, "SELECT count(*) FROM email_outbox WHERE status = 'PENDING'"); left < n/4 {
		t.Errorf("only %d emails were left: the quiet tenant did not wait beside others", left)
	}
}

// forgetRate makes workers that cannot read the account use SES_MAX_SEND_RATE, although an earlier one has read it.
func forgetRate(s *system) {
	s.t.Helper()
	if err := s.redisClient().Del(s.t.Context(), "email-gateway:pace:rate").Err(); err != nil {
		s.t.Fatal(err)
	}
}

// SES accepts 20 emails per second and refuses the rest of 5,000. Two dispatchers keep the tasks of all states within
// the window plus the concurrency, and another tenant's email waits for few of them once the rate is reduced.
func TestThrottledAccount(t *testing.T) {
	t.Parallel()
	const n, rate, accepted, concurrency = 5_000, 100, 20, 10
	s := startSystem(t, map[string]string{"SES_MAX_SEND_RATE": fmt.Sprint(rate), "WORKER_CONCURRENCY": fmt.Sprint(concurrency)})
	changeSettings(s.t, s.ses, func(st *sessim.Settings) {
		st.GetAccount, st.MaxSendRate, st.EnforceRate = "404", accepted, true
	})
	forgetRate(s)
	s.restartWorker(nil)
	other := startProgram(t, "dispatcher", s.env)
	quiet := *s
	quiet.key = s.newKey("Quiet", "billing@quiet.example")

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
	acceptMany(s, n)
	eventually(t, func() error {
		window, tasks := s.dispatcher.metric("queue_window_tasks", "email:send"), s.dispatcher.metric("queue_tasks", "email:send")
		if window > 2*concurrency+5 || tasks > window {
			return fmt.Errorf("the window is still %g tasks, of which %g are used", window, tasks)
		}
		return nil
	})
	ahead := requestsAhead(&quiet, "ana@example.com")
	if ahead > n/10 { // a window is 25 of them, and 20 per second are sent until a dispatcher has taken the other tenant's
		t.Errorf("SES received %d requests before that of a quiet tenant", ahead)
	}
	end()
	<-stopped
	t.Logf("at most %d tasks; %d requests before the quiet tenant's", most, ahead)
	if limit := rate + concurrency; most > limit {
		t.Errorf("%d tasks on the queue, want %d at most", most, limit)
	}
	if lost := s.dispatcher.lostTasks() + other.lostTasks(); lost != 0 {
		t.Errorf("%g tasks count as lost", lost)
	}
	if failed := storetest.Ask[int](s.t, s.db, "SELECT count(*) FROM email_outbox WHERE status = 'FAILED'"); failed != 0 {
		t.Errorf("%d emails FAILED", failed)
	}
}
