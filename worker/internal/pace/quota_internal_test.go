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

// A restriction is logged when it begins and when it ends, not while the account cannot be read.
func TestQuota_LogsRestriction(t *testing.T) {
	t.Parallel()
	account, log := &scripted{limits: Limits{PerSecond: 14}}, &strings.Builder{}
	quota := NewQuota(QuotaParams{
		Log: slog.New(slog.NewTextHandler(log, nil)), Pacer: New(nil, 1), Account: account, Breaker: noBreaker{}, Registry: prometheus.NewRegistry(), Fallback: 14,
	})
	for _, step := range []struct {
		restriction string
		err         error
		begun, over int // lines of the log
	}{
		{"", nil, 0, 0}, {"sandbox", nil, 1, 0}, {"sandbox", nil, 1, 0}, {"", errors.New("timeout"), 1, 0}, {"", nil, 1, 1}, {"sandbox", nil, 2, 1},
	} {
		account.limits.Restriction, account.err = step.restriction, step.err
		quota.ask(t.Context())
		begun, over := strings.Count(log.String(), "reason=sandbox"), strings.Count(log.String(), "no longer restricted")
		if begun != step.begun || over != step.over {
			t.Errorf("%+v: logged %d and %d: %s", step, begun, over, log)
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

// switched is an account that answers or not, as the test sets it. Its calls are counted.
type switched struct {
	mu    sync.Mutex
	calls int
	limit Limits
	err   error
}

func (s *switched) Limits(context.Context) (Limits, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.calls++
	return s.limit, s.err
}

func (s *switched) set(limit Limits, err error) (calls int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.limit, s.err = limit, err
	calls, s.calls = s.calls, 0
	return calls
}

// Whether the provider answers is the result of the calls that read the limits, one per minute: asking for it makes no further
// call. An outage is known after a minute and a round of the loop, its end after two rounds.
func TestQuota_Reach(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		fine, down := Limits{PerSecond: 14, PerDay: 200}, errors.New("connection refused")
		account := &switched{limit: fine}
		quota := NewQuota(QuotaParams{
			Log: slog.New(slog.DiscardHandler), Pacer: New(nil, 1), Account: account, Breaker: noBreaker{},
			Peers:    func(context.Context) (int, error) { return 1, nil },
			Registry: prometheus.NewRegistry(), Fallback: 100,
		})
		early, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := quota.Reach(early); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("before the first call: %v", err)
		}
		if err := quota.Start(t.Context(), func(err error) { t.Error(err) }); err != nil {
			t.Fatal(err)
		}
		// reached waits for an answer, for at most a time, and then checks that it is the same for five minutes.
		reached := func(name string, want error, within time.Duration) {
			t.Helper()
			started := time.Now()
			for !errors.Is(quota.Reach(t.Context()), want) {
				if time.Since(started) > within {
					t.Fatalf("%s: %v after %s, want %v", name, quota.Reach(t.Context()), within, want)
				}
				<-time.After(time.Second)
			}
			for range 60 {
				<-time.After(5 * time.Second)
				if err := quota.Reach(t.Context()); !errors.Is(err, want) {
					t.Fatalf("%s: %v, want %v", name, err, want)
				}
			}
		}
		reached("answers", nil, 0)
		if calls := account.set(Limits{Unreachable: down}, down); calls < 4 || calls > 6 {
			t.Errorf("%d calls in five minutes", calls)
		}
		reached("outage", down, quotaInterval+quotaRetry+quotaJitter)
		account.set(Limits{}, errors.New("403"))
		reached("answers, but not with limits", nil, 2*quotaRetry+quotaJitter)
		account.set(Limits{Unreachable: down}, down)
		reached("outage again", down, 2*quotaRetry+quotaJitter)
		account.set(fine, nil)
		reached("answers again", nil, 2*quotaRetry+quotaJitter)
		if err := quota.Stop(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

// hanging answers its second call only when the call's context ends.
type hanging struct {
	calls   int
	waiting chan struct{}
}

func (h *hanging) Limits(ctx context.Context) (Limits, error) {
	if h.calls++; h.calls == 1 {
		return Limits{PerSecond: 14, PerDay: 200}, nil
	}
	close(h.waiting)
	<-ctx.Done()
	return Limits{Unreachable: ctx.Err()}, ctx.Err()
}

// A call that the end of the process aborts says nothing about the provider.
func TestQuota_ReachAtStop(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		log, account := &strings.Builder{}, &hanging{waiting: make(chan struct{})}
		quota := NewQuota(QuotaParams{
			Log: slog.New(slog.NewTextHandler(log, &slog.HandlerOptions{Level: slog.LevelWarn})), Pacer: New(nil, 1), Account: account, Breaker: noBreaker{},
			Peers:    func(context.Context) (int, error) { return 1, nil },
			Registry: prometheus.NewRegistry(), Fallback: 100,
		})
		if err := quota.Start(t.Context(), func(err error) { t.Error(err) }); err != nil {
			t.Fatal(err)
		}
		<-account.waiting
		if err := quota.Stop(t.Context()); err != nil {
			t.Error(err)
		}
		if err := quota.Reach(t.Context()); err != nil || log.Len() > 0 {
			t.Errorf("%v, log %q", err, log)
		}
	})
}
