package pipeline_test

import (
	"log/slog"
	"strings"
	"sync"
	"testing"

	"github.com/google/uuid"
	"github.com/prometheus/client_golang/prometheus"

	"email-gateway/shared/email"
	"email-gateway/shared/logtest"
	"email-gateway/worker/internal/breaker"
	"email-gateway/worker/internal/provider"
)

// Another session locks the circuit breaker's row when an outage begins. Failed attempts are
// recorded without waiting for it, other emails are sent, and the breaker opens with the next
// failure after the lock is gone.
func TestBreaker_LockedRow(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		failure             provider.Failure
		calls               int // before the breaker opens
		status              email.Status
		attempts, throttles int // of the emails that run into the lock
	}{
		"account paused":    {paused, 1, email.Failed, 1, 0},
		"daily quota":       {quota, 1, email.RetryScheduled, 1, 1},
		"wrong credentials": {denied, 1, email.Pending, 0, 0},
		"outage":            {away, 20, email.Pending, 0, 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var lines logtest.Buffer
			log := slog.New(slog.NewTextHandler(&lines, nil))
			b := newBench(t, nil)
			b.pipeline.Breaker = breaker.New(breaker.Params{Log: log, Store: b.Store, Instance: "worker-1", Registry: prometheus.NewRegistry()})
			accept := func(n int) (ids []uuid.UUID) {
				for range n {
					ids = append(ids, b.Accept(t, b.company, nil))
				}
				return ids
			}
			before, locked, others, after := accept(c.calls-1), accept(40), accept(5), accept(c.calls)
			tx, err := b.SQL.BeginTx(t.Context(), nil)
			if err != nil {
				t.Fatal(err)
			}
			defer tx.Rollback()
			if _, err := tx.ExecContext(t.Context(), `SELECT FROM provider_gate WHERE id = 1 FOR UPDATE`); err != nil {
				t.Fatal(err)
			}
			b.sender.fail(len(before)+len(locked), c.failure)
			for _, id := range before {
				_ = b.handle(t, id)
			}
			var group sync.WaitGroup
			for _, id := range locked {
				task := b.task(t, id)
				group.Go(func() { _ = b.pipeline.Handle(t.Context(), task) })
			}
			group.Wait()
			for _, id := range locked {
				b.expect(t, id, c.status, c.attempts, c.throttles)
			}
			for _, id := range others {
				if err := b.handle(t, id); err != nil {
					t.Error(err)
				}
				b.expect(t, id, email.Sent, 1, 0)
			}
			// An attempt that waits until statement_timeout logs an error.
			if g := b.breakerRow(t); g.IsOpen || strings.Contains(lines.String(), "level=ERROR") || !strings.Contains(lines.String(), "level=WARN") {
				t.Errorf("the breaker is open: %t; logged:\n%s", g.IsOpen, lines.String())
			}
			if err := tx.Rollback(); err != nil {
				t.Fatal(err)
			}
			b.sender.fail(c.calls, c.failure)
			for _, id := range after {
				_ = b.handle(t, id)
			}
			if g := b.breakerRow(t); !g.IsOpen || *g.Reason != c.failure.Code {
				t.Errorf("after the lock the breaker is %+v", g)
			}
		})
	}
}

// The probe is sent while another session has locked the breaker's row: its result is recorded, and
// the next probe closes the breaker.
func TestBreaker_ProbeWithLockedRow(t *testing.T) {
	t.Parallel()
	b := newBench(t, nil)
	b.openBreaker(t, denied)
	probe, next := b.Accept(t, b.company, nil), b.Accept(t, b.company, nil)
	b.probe(t, probe)
	tx, err := b.SQL.BeginTx(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer tx.Rollback()
	if _, err := tx.ExecContext(t.Context(), `SELECT FROM provider_gate WHERE id = 1 FOR UPDATE`); err != nil {
		t.Fatal(err)
	}
	if err := b.handle(t, probe); err != nil {
		t.Errorf("probe: %v", err)
	}
	b.expect(t, probe, email.Sent, 1, 0)
	if err := tx.Rollback(); err != nil {
		t.Fatal(err)
	}
	b.probe(t, next)
	if err := b.handle(t, next); err != nil || b.breakerRow(t).IsOpen {
		t.Errorf("next probe: %v, %+v", err, b.breakerRow(t))
	}
}
