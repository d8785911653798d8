package dbcheck_test

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"email-gateway/worker/internal/dbcheck"
)

var errAway = errors.New("database unavailable")

// postgres is a database that answers or not.
type postgres struct {
	away  atomic.Bool
	asked atomic.Int64
}

func (p *postgres) confirm(context.Context) error {
	p.asked.Add(1)
	if p.away.Load() {
		return errAway
	}
	return nil
}

func newCheck() (*postgres, *dbcheck.Check, *strings.Builder) {
	p, log := &postgres{}, &strings.Builder{}
	return p, dbcheck.New(slog.New(slog.NewTextHandler(log, nil)), p.confirm), log
}

// While no statement has failed, Postgres is not asked. A failure that Postgres did not cause delays nothing.
func TestCheck_Works(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p, c, log := newCheck()
		start := time.Now()
		if err := c.Await(t.Context()); err != nil || c.Suspect() || p.asked.Load() != 0 {
			t.Errorf("%v, suspect %t, asked %d times", err, c.Suspect(), p.asked.Load())
		}
		c.Failed()
		if !c.Suspect() {
			t.Error("not suspect after a failure")
		}
		if err := c.Await(t.Context()); err != nil || c.Suspect() || p.asked.Load() != 1 {
			t.Errorf("%v, suspect %t, asked %d times", err, c.Suspect(), p.asked.Load())
		}
		if time.Since(start) > 0 || log.Len() > 0 {
			t.Errorf("it took %s: %s", time.Since(start), log)
		}
	})
}

// In an outage all consumers wait, Postgres is asked every 2 s whatever their number, and they continue within 2 s of its end.
func TestCheck_Outage(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p, c, log := newCheck()
		p.away.Store(true)
		c.Failed()
		var waiting sync.WaitGroup
		var through atomic.Int64
		for range 10 {
			waiting.Go(func() {
				for { // as a consumer whose waits are bounded
					ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
					err := c.Await(ctx)
					cancel()
					if err == nil {
						through.Add(1)
						return
					}
				}
			})
		}
		<-time.After(time.Minute)
		c.Failed() // by a statement that had begun before
		if n := p.asked.Load(); through.Load() != 0 || n < 20 || n > 40 {
			t.Errorf("%d consumers continued, asked %d times", through.Load(), n)
		}
		if err := c.Ask(t.Context()); !errors.Is(err, errAway) {
			t.Errorf("asked: %v", err)
		}
		p.away.Store(false)
		<-time.After(2 * time.Second)
		synctest.Wait()
		if through.Load() != 10 || c.Suspect() {
			t.Errorf("%d consumers continued", through.Load())
		}
		waiting.Wait()
		if n := strings.Count(log.String(), "\n"); n != 2 {
			t.Errorf("logged %d lines, want the beginning and the end: %s", n, log)
		}
	})
}

// A caller that stops waiting is no sign of an outage.
func TestCheck_CallerEnds(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		log := &strings.Builder{}
		c := dbcheck.New(slog.New(slog.NewTextHandler(log, nil)), func(ctx context.Context) error {
			<-ctx.Done() // Postgres is silent
			return ctx.Err()
		})
		c.Failed()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := c.Await(ctx); !errors.Is(err, context.DeadlineExceeded) || log.Len() > 0 {
			t.Errorf("%v: %s", err, log)
		}
		start := time.Now()
		if err := c.Ask(t.Context()); err == nil || time.Since(start) > 2*time.Second {
			t.Errorf("%v after %s", err, time.Since(start))
		}
	})
}
