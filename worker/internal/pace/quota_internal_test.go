package pace

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// scripted is an account with a result that the test sets.
type scripted struct {
	limits Limits
	err    error
}

func (s *scripted) Limits(context.Context) (Limits, error) { return s.limits, s.err }

type noBreaker struct{}

func (noBreaker) Account(context.Context, string) {}

// While the account cannot be read its last rate is used for an hour, and SES_MAX_SEND_RATE after that. Changes are logged once.
func TestQuota_KeepsLastRate(t *testing.T) {
	t.Parallel()
	now := time.Now()
	account, log := &scripted{limits: Limits{PerSecond: 14, PerDay: 200}}, &strings.Builder{}
	pacer := New(nil, 1)
	quota := NewQuota(QuotaParams{
		Log: slog.New(slog.NewTextHandler(log, nil)), Pacer: pacer, Account: account, Breaker: noBreaker{},
		Registry: prometheus.NewRegistry(), Fallback: 100,
	})
	quota.now = func() time.Time { return now }
	for _, step := range []struct {
		name   string
		passed time.Duration
		rate   float64 // of the account
		err    error
		want   float64
		lines  int // of the log
	}{
		{"read", 0, 14, nil, 14, 1},
		{"failed", time.Minute, 0, errors.New("timeout"), 14, 2},
		{"failed again", 58 * time.Minute, 0, errors.New("timeout"), 14, 2},
		{"failed for an hour", time.Minute, 0, errors.New("timeout"), 100, 3},
		{"failed for longer", time.Minute, 0, errors.New("timeout"), 100, 3},
		{"read again", time.Minute, 500, nil, 500, 4},
		{"invalid", time.Minute, 0, nil, 500, 5},
		{"read again, the same", time.Minute, 500, nil, 500, 6},
	} {
		now = now.Add(step.passed)
		account.limits.PerSecond, account.err = step.rate, step.err
		quota.ask(t.Context())
		if pacer.FullRate() != step.want {
			t.Errorf("%s: rate %v, want %v", step.name, pacer.FullRate(), step.want)
		}
		if n := strings.Count(log.String(), "\n"); n != step.lines {
			t.Errorf("%s: %d log lines, want %d: %s", step.name, n, step.lines, log)
		}
	}
}

// callTimes is an account that answers no call.
type callTimes struct {
	mu    sync.Mutex
	times []time.Time
}

func (c *callTimes) Limits(context.Context) (Limits, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.times = append(c.times, time.Now())
	return Limits{}, errors.New("429")
}

// Processes that are started together do not repeat their calls together.
func TestQuota_CallsSpread(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const processes = 20
		account, started := &callTimes{}, time.Now()
		for range processes {
			quota := NewQuota(QuotaParams{
				Log: slog.New(slog.DiscardHandler), Pacer: New(nil, 1), Account: account, Breaker: noBreaker{},
				Peers:    func(context.Context) (int, error) { return processes, nil },
				Registry: prometheus.NewRegistry(), Fallback: 100,
			})
			if err := quota.Start(t.Context(), func(err error) { t.Error(err) }); err != nil {
				t.Fatal(err)
			}
			defer func() {
				if err := quota.Stop(t.Context()); err != nil {
					t.Error(err)
				}
			}()
		}
		<-time.After(quotaRetry + quotaJitter)
		account.mu.Lock()
		defer account.mu.Unlock()
		seconds := map[int]bool{}
		for _, at := range account.times[processes:] {
			seconds[int(at.Sub(started).Seconds())] = true
		}
		if len(account.times) < 2*processes || len(seconds) < 3 {
			t.Errorf("%d calls, the repeated ones in %d seconds", len(account.times), len(seconds))
		}
	})
}
