package dispatcher_test

import (
	"fmt"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/google/uuid"
	"github.com/hibiken/asynq"

	"email-gateway/shared/email"
	"email-gateway/shared/waittest"
	"email-gateway/worker/internal/queue/redistest"
)

// BenchmarkDispatch moves a backlog in ten lanes through one dispatcher, or two. Compare it with
// BenchmarkEnqueue, which enqueues the same tasks with asynq's own client in a program without any
// bookkeeping.
func BenchmarkDispatch(b *testing.B) {
	for _, dispatchers := range []int{1, 2} {
		b.Run(fmt.Sprintf("dispatchers=%d", dispatchers), func(b *testing.B) {
			bench := newBench(b)
			const lanes = 10
			rows := max(b.N/lanes, 1) * lanes
			for range lanes {
				bench.acceptMany(b, bench.Accept(b, bench.Company(b), nil), rows/lanes-1)
			}
			if _, err := bench.SQL.ExecContext(b.Context(), "VACUUM ANALYZE email_outbox"); err != nil {
				b.Fatal(err)
			}
			b.ResetTimer()
			for range dispatchers {
				p := bench.params()
				p.SendRate = float64(rows)
				bench.dispatch(b, p)
			}
			waittest.Until(b, "all rows are on Redis", func() bool { return bench.depth(b, email.QueueNormal) >= rows })
			b.ReportMetric(float64(rows)/b.Elapsed().Seconds(), "rows/s")
		})
	}
}

func BenchmarkEnqueue(b *testing.B) {
	bench := newBench(b)
	client := asynq.NewClient(bench.conn)
	defer func() { _ = client.Close() }()
	_, prefix := redistest.Shared(b)
	payload := make([]byte, 600)
	var next atomic.Int64
	b.ResetTimer()
	var wg sync.WaitGroup
	for range 64 {
		wg.Go(func() {
			for next.Add(1) <= int64(b.N) {
				task := asynq.NewTask("email:send", payload, asynq.TaskID(uuid.NewString()), asynq.Queue(prefix+email.QueueNormal))
				if _, err := client.EnqueueContext(b.Context(), task); err != nil {
					b.Error(err)
					return
				}
			}
		})
	}
	wg.Wait()
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "rows/s")
}
