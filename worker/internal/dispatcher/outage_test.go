package dispatcher_test

import (
	"math"
	"testing"

	"email-gateway/shared/email"
	"email-gateway/shared/servertest"
	"email-gateway/shared/waittest"
	"email-gateway/worker/internal/queue/redistest"
)

func TestOutage_Redis(t *testing.T) {
	t.Parallel()
	for name, breakIt := range map[string]func(*servertest.Server) (mend func()){
		"stopped": func(s *servertest.Server) func() { s.Stop(); return s.Start },
		"frozen":  func(s *servertest.Server) func() { s.Freeze(); return s.Thaw },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := redistest.Start(t)
			b := newBenchOn(t, server.URL, "")
			like := b.Accept(t, b.Company(t), nil)
			p := b.params()
			p.SendRate = 6_700
			b.dispatch(t, p)
			b.expectStatus(t, like, email.Enqueued)

			b.acceptMany(t, like, 2_000)
			mend := breakIt(server)
			t.Cleanup(func() {
				if t.Failed() {
					mend()
				}
			})
			b.acceptMany(t, like, 1_000)
			waittest.Until(t, "the outage in the log", func() bool { return b.log.Count("dispatching interrupted") > 0 })
			waittest.Until(t, "no number of tasks", func() bool {
				return math.IsNaN(gauge(t, p.Registry, "queue_tasks", "queue", email.QueueNormal))
			})
			mend()

			waittest.Until(t, "everything on the queue", func() bool { return b.count(t, email.Enqueued) == 3_001 })
			waittest.Until(t, "the end of the outage in the log", func() bool { return b.log.Count("dispatching resumed") > 0 })
			waittest.Until(t, "a task for each", func() bool { return b.depth(t, email.QueueNormal) == 3_001 })
			if begun, ended := b.log.Count("dispatching interrupted"), b.log.Count("dispatching resumed"); begun > 2 || ended > 2 {
				t.Errorf("one outage was logged %d times, its end %d times:\n%s", begun, ended, b.log)
			}
		})
	}
}

// Postgres ends all sessions: uncommitted rows stay due.
func TestOutage_SessionsTerminated(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	like := b.Accept(t, b.Company(t), nil)
	p := b.params()
	p.SendRate = 2_700
	b.acceptMany(t, like, 1_999)
	b.dispatch(t, p)
	for range 3 {
		waittest.Until(t, "some more on the queue", func() bool { return b.count(t, email.Enqueued) > 0 })
		if _, err := b.SQL.ExecContext(t.Context(), `
			SELECT pg_terminate_backend(pid) FROM pg_stat_activity
			WHERE datname = current_database() AND pid <> pg_backend_pid()`); err != nil {
			t.Fatal(err)
		}
	}
	waittest.Until(t, "everything on the queue", func() bool { return b.count(t, email.Enqueued) == 2_000 })
	waittest.Until(t, "a task for each", func() bool { return b.depth(t, email.QueueNormal) == 2_000 })
}
