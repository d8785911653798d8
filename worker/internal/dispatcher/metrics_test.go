package dispatcher_test

import (
	"context"
	"errors"
	"math"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"email-gateway/shared/email"
	"email-gateway/shared/store/process"
	"email-gateway/shared/waittest"
	"email-gateway/worker/internal/dispatcher"
)

// The metrics show the backlog, its age, the queues' depth and the live processes.
func TestMetrics(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	company := b.Company(t)
	b.acceptMany(t, b.Accept(t, company, nil), 249) // 50 more than the window
	overdue := b.Accept(t, b.Company(t), withPriority(1))
	held := b.Company(t)
	b.Accept(t, held, withPriority(9))
	b.set(t, overdue, `status = 'RETRY_SCHEDULED', enqueued_at = now(), next_at = now() - interval '1 minute'`)
	if _, err := b.SQL.ExecContext(t.Context(), `UPDATE email_outbox SET next_at = now() - interval '1 hour' WHERE company_id = $1`, company); err != nil {
		t.Fatal(err)
	}
	if _, err := b.SQL.ExecContext(t.Context(), `UPDATE dispatch_lanes SET paused_at = now() WHERE company_id = $1`, held); err != nil {
		t.Fatal(err)
	}
	if _, err := b.SQL.ExecContext(t.Context(), `INSERT INTO person_erasures (id, company_id, person, begun_at)
		SELECT gen_random_uuid(), $1, '{}', now() - age FROM unnest('{1 minute,2 hours}'::interval[]) age`, company); err != nil {
		t.Fatal(err)
	}
	for _, instance := range []string{"a", "b"} {
		if err := b.Store.ReportStatus(t.Context(), "worker", instance, time.Now(), map[string]any{}); err != nil {
			t.Fatal(err)
		}
	}
	// The backlog is measured once at the start, so the rows must be there by then.
	first := b.params()
	stop := b.dispatch(t, first)
	waittest.Until(t, "a full window", func() bool { return b.count(t, email.Enqueued) == 201 })
	waittest.Until(t, "one lost retry", func() bool {
		return gauge(t, first.Registry, "outbox_lost_retries_total", "queue", email.QueueHigh) == 1
	})
	stop()
	p := b.params()
	p.Ages = b.publisher
	b.dispatch(t, p)
	for _, m := range []struct {
		name, label, value string
		least, most        float64
	}{
		{"mailing_outbox_pending_count", "", "", 51, 51},
		{"outbox_outcome_unknown_count", "", "", 0, 0},
		{"dead_letters_open_count", "", "", 0, 0},
		{"dead_letters_expiring_count", "kind", "bulk", 0, 0},
		{"person_erasures_oldest_seconds", "", "", 7200, 7300},
		{"outbox_oldest_due_seconds", "queue", email.QueueNormal, 3600, 3700},
		{"outbox_oldest_due_seconds", "queue", email.QueueHigh, 0, 0},
		{"outbox_oldest_due_seconds", "queue", email.QueueLow, 0, 0}, // its lane is paused
		{"queue_tasks", "queue", email.QueueNormal, 200, 200},
		{"queue_window_tasks", "queue", email.QueueNormal, 200, 200},
		{"queue_oldest_task_seconds", "queue", email.QueueNormal, 0.001, 60},
		{"queue_oldest_task_seconds", "queue", email.QueueLow, 0, 0},
		{"gateway_processes", "service", "worker", 2, 2},
		{"gateway_processes", "service", "dispatcher", 0, 0},
	} {
		var got float64
		waittest.Until(t, m.name+" of "+m.value, func() bool {
			got = gauge(t, p.Registry, m.name, m.label, m.value)
			return got >= m.least && got <= m.most
		})
	}
}

// A dispatcher that has lost Postgres does not show the last number of processes.
func TestMetrics_ProcessesUnknown(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	p := b.params()
	outbox := &statusesAway{Store: p.Store}
	p.Store = outbox
	b.dispatch(t, p)
	worker := func() float64 { return gauge(t, p.Registry, "gateway_processes", "service", "worker") }
	waittest.Until(t, "a count", func() bool { return worker() == 0 })
	outbox.away.Store(true)
	waittest.Until(t, "NaN", func() bool { return math.IsNaN(worker()) })
	outbox.away.Store(false)
	waittest.Until(t, "a count again", func() bool { return worker() == 0 })
}

type statusesAway struct {
	dispatcher.Store
	away atomic.Bool
}

func (o *statusesAway) ProcessStatuses(ctx context.Context) ([]process.Status, error) {
	if o.away.Load() {
		return nil, errors.New("away")
	}
	return o.Store.ProcessStatuses(ctx)
}

// gauge is the value of a gauge or counter, the maximum of those with the label; -1 if there is
// none.
func gauge(t *testing.T, registry prometheus.Registerer, name, label, value string) float64 {
	t.Helper()
	families, err := registry.(*prometheus.Registry).Gather()
	if err != nil {
		t.Fatal(err)
	}
	greatest := -1.0
	for _, f := range families {
		if f.GetName() != name {
			continue
		}
		for _, m := range f.GetMetric() {
			matches := label == ""
			for _, l := range m.GetLabel() {
				matches = matches || l.GetName() == label && l.GetValue() == value
			}
			if matches {
				greatest = max(greatest, m.GetGauge().GetValue()+m.GetCounter().GetValue())
			}
		}
	}
	return greatest
}
