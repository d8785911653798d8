package pace_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/redis/go-redis/v9"

	"email-gateway/shared/waittest"
	"email-gateway/worker/internal/pace"
)

// newRedis is the test server without the bucket. The bucket's key is fixed, so the tests of this
// package that use it do not run in parallel.
func newRedis(t *testing.T) *redis.Client {
	t.Helper()
	o, err := redis.ParseURL(os.Getenv("REDIS_URL"))
	if err != nil {
		t.Fatalf("REDIS_URL: %v; run the tests through ./scripts/test.sh", err)
	}
	client := redis.NewClient(o)
	t.Cleanup(func() { _ = client.Close() })
	if err := client.Del(t.Context(), "email-gateway:pace", "email-gateway:pace:rate").Err(); err != nil {
		t.Fatal(err)
	}
	return client
}

func TestPacer_SharedRate(t *testing.T) {
	const perSecond, processes, emails = 200, 4, 400
	measure := func(processes int) (rate float64) {
		client := newRedis(t)
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		var let atomic.Int64
		var group sync.WaitGroup
		start := time.Now()
		for range processes {
			pacer := pace.New(client, perSecond)
			for range 8 {
				group.Go(func() {
					for pacer.Wait(ctx, 1) == nil {
						if let.Add(1) >= emails {
							cancel()
						}
					}
				})
			}
		}
		group.Wait()
		took := time.Since(start).Seconds()
		// A tenth of a second's rate may be sent at once at the start.
		if limit := perSecond * (took + 0.1); float64(let.Load()) > limit+1 {
			t.Errorf("%d processes: %d emails in %.2f s, want at most %.0f", processes, let.Load(), took, limit)
		}
		return float64(let.Load()) / took
	}
	// Other load may slow down one try; processes that lose tokens are slow in each.
	for try := 1; ; try++ {
		one, all := measure(1), measure(processes)
		t.Logf("%.0f emails/s by one process, %.0f by %d", one, all, processes)
		if all >= one/2 {
			break
		}
		if try == 3 {
			t.Errorf("%d processes send %.0f emails/s, one sends %.0f", processes, all, one)
			break
		}
	}
}

// Idle processes together hold the tokens of a twentieth of a second, however many they are.
func TestPacer_BurstAfterIdleTime(t *testing.T) {
	const perSecond, processes = 500, 20
	client := newRedis(t)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var pacers []*pace.Pacer
	for range processes {
		p := pace.New(client, perSecond)
		p.SetProcesses(processes)
		pacers = append(pacers, p)
	}
	ticker := time.NewTicker(10 * time.Millisecond)
	defer ticker.Stop()
	for range 200 { // the rate produces 1,000 tokens
		for _, p := range pacers {
			if err := p.Wait(t.Context(), 1); err != nil {
				t.Fatal(err)
			}
			p.Return(1)
		}
		<-ticker.C
	}
	var let atomic.Int64
	var group sync.WaitGroup
	start := time.Now()
	time.AfterFunc(100*time.Millisecond, cancel)
	for _, p := range pacers {
		group.Go(func() {
			for p.Wait(ctx, 1) == nil {
				let.Add(1)
			}
		})
	}
	group.Wait()
	// The bucket has a tenth of a second.
	if most := perSecond*(time.Since(start).Seconds()+0.1+0.05) + processes; float64(let.Load()) > most {
		t.Errorf("%d emails in %s, want at most %.0f", let.Load(), time.Since(start), most)
	}
}

func TestPacer_CountsRecipients(t *testing.T) {
	pacer := pace.New(newRedis(t), 20) // a bucket of two tokens
	start := time.Now()
	if err := pacer.Wait(t.Context(), 6); err != nil {
		t.Fatal(err)
	}
	if took := time.Since(start); took < 150*time.Millisecond {
		t.Errorf("six recipients in %s, want about 200 ms at 20/s", took)
	}
}

func TestPacer_OwnShareWithoutRedis(t *testing.T) {
	t.Parallel()
	unreachable := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1", MaxRetries: -1, DialTimeout: 50 * time.Millisecond})
	t.Cleanup(func() { _ = unreachable.Close() })
	start := time.Now() // before the first token is counted
	pacer := pace.New(unreachable, 100)
	pacer.SetProcesses(4)
	for range 6 {
		if err := pacer.Wait(t.Context(), 1); err != nil {
			t.Fatal(err)
		}
	}
	// A bucket of at most 2.5 tokens; at 100/s the emails would not wait at all.
	if took := time.Since(start); took < 100*time.Millisecond {
		t.Errorf("6 emails in %s, want at least 140 ms at a quarter of 100/s", took)
	}
}

func TestPacer_WaitContext(t *testing.T) {
	client := newRedis(t)
	pacer := pace.New(client, 0.01)
	if err := pacer.Wait(t.Context(), 1); err != nil { // the bucket starts with one token
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if err := pacer.Wait(ctx, 1); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("err = %v, want the context's", err)
	}
}

type account struct {
	rate, perDay, sent float64
	refusal            string
	review             bool
	err                error
}

func (a account) Limits(context.Context) (pace.Limits, error) {
	return pace.Limits{PerSecond: a.rate, PerDay: a.perDay, SentToday: a.sent, Refusal: a.refusal, UnderReview: a.review}, a.err
}

// breaker records the reports.
type breaker struct {
	mu   sync.Mutex
	told []string
}

func (b *breaker) Account(_ context.Context, refusal string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.told = append(b.told, refusal)
}

// The account's state is known when Start returns, before the first email is taken.
func TestQuota_ReportsRefusalAtStart(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		account account
		want    []string
	}{
		"sending":                 {account{rate: 14, perDay: 200}, []string{""}},
		"refused":                 {account{rate: 14, perDay: 200, refusal: "SES_ACCOUNT_SENDING_PAUSED"}, []string{"SES_ACCOUNT_SENDING_PAUSED"}},
		"not available":           {account{err: errors.New("404")}, nil},
		"refused, without a rate": {account{refusal: "SES_ACCOUNT_SENDING_PAUSED"}, []string{"SES_ACCOUNT_SENDING_PAUSED"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			told := &breaker{}
			loop := pace.NewQuota(pace.QuotaParams{
				Log: slog.New(slog.DiscardHandler), Pacer: pace.New(nil, 1), Account: c.account, Breaker: told, Peers: alone,
				Registry: prometheus.NewRegistry(), Fallback: 100,
			})
			if err := loop.Start(t.Context(), func(err error) { t.Error(err) }); err != nil {
				t.Fatal(err)
			}
			defer func() {
				if err := loop.Stop(t.Context()); err != nil {
					t.Error(err)
				}
			}()
			told.mu.Lock()
			defer told.mu.Unlock()
			if !slices.Equal(told.told, c.want) {
				t.Errorf("reported %q, want %q", told.told, c.want)
			}
		})
	}
}

func alone(context.Context) (int, error) { return 1, nil }

func TestQuota_RateAndFallback(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		account account
		want    float64
		gauges  string // limit and remaining quota, and whether the account is under review
	}{
		"the account's rate":     {account{rate: 14, perDay: 50_000, sent: 49_000.4}, 14, "50000 999.5999999999985 0"},
		"more sent than allowed": {account{rate: 14, perDay: 200, sent: 201}, 14, "200 0 0"},
		"unlimited":              {account{rate: 14, perDay: -1, sent: 7}, 14, "+Inf +Inf 0"},
		"under review":           {account{rate: 14, perDay: -1, review: true}, 14, "+Inf +Inf 1"},
		"not available":          {account{err: errors.New("404")}, 100, "NaN NaN NaN"},
		"invalid":                {account{rate: 0, perDay: 200}, 100, "NaN NaN NaN"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			pacer := pace.New(nil, 1)
			registry := prometheus.NewRegistry()
			loop := pace.NewQuota(pace.QuotaParams{
				Log: slog.New(slog.DiscardHandler), Pacer: pacer, Account: c.account, Breaker: &breaker{}, Peers: alone, Registry: registry, Fallback: 100,
			})
			if err := loop.Start(t.Context(), func(err error) { t.Error(err) }); err != nil {
				t.Fatal(err)
			}
			deadline := time.After(3 * time.Minute)
			for pacer.Rate() != c.want {
				select {
				case <-deadline:
					t.Fatalf("rate = %v, want %v", pacer.Rate(), c.want)
				default:
				}
			}
			if err := loop.Stop(t.Context()); err != nil {
				t.Error(err)
			}
			got := fmt.Sprint(gauge(t, registry, "provider_quota_limit"), " ", gauge(t, registry, "provider_quota_left"), " ", gauge(t, registry, "provider_account_under_review"))
			if got != c.gauges || gauge(t, registry, "provider_send_rate_limit") != c.want {
				t.Errorf("gauges %s at %g, want %s", got, gauge(t, registry, "provider_send_rate_limit"), c.gauges)
			}
		})
	}
}

// A process that cannot read the account uses the rate that another one has read: they share the bucket.
func TestQuota_RateOfOtherProcess(t *testing.T) {
	client := newRedis(t)
	rate := func(a account) float64 {
		t.Helper()
		pacer := pace.New(client, 1)
		loop := pace.NewQuota(pace.QuotaParams{
			Log: slog.New(slog.DiscardHandler), Pacer: pacer, Account: a, Breaker: &breaker{}, Peers: alone, Registry: prometheus.NewRegistry(), Fallback: 100,
		})
		if err := loop.Start(t.Context(), func(err error) { t.Error(err) }); err != nil {
			t.Fatal(err)
		}
		if err := loop.Stop(t.Context()); err != nil {
			t.Error(err)
		}
		return pacer.FullRate()
	}
	throttled := account{err: errors.New("429")}
	if got := rate(throttled); got != 100 {
		t.Errorf("rate %v before a process has read the account, want the fallback", got)
	}
	rate(account{rate: 14.5})
	if got := rate(throttled); got != 14.5 {
		t.Errorf("rate %v, want that of the other process", got)
	}
	if left, err := client.PTTL(t.Context(), "email-gateway:pace:rate").Result(); err != nil || left <= 0 || left > time.Hour {
		t.Errorf("the rate is used for %s, %v, want up to an hour", left, err)
	}
}

func gauge(t *testing.T, registry *prometheus.Registry, name string) float64 {
	t.Helper()
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() == name {
			return f.GetMetric()[0].GetGauge().GetValue()
		}
	}
	t.Fatalf("no %s", name)
	return 0
}

// The tokens of an email that was not sent are used by the next one.
func TestPacer_Return(t *testing.T) {
	pacer := pace.New(newRedis(t), 0.002) // a burst of one, and the next after 500 s
	if err := pacer.Wait(t.Context(), 1); err != nil {
		t.Fatal(err)
	}
	pacer.Return(1)
	ctx, cancel := context.WithTimeout(t.Context(), waittest.Limit)
	defer cancel()
	if err := pacer.Wait(ctx, 1); err != nil {
		t.Error(err)
	}
}

// Borrowed tokens delay the next emails, whatever the order of Borrow and Return.
func TestPacer_Borrow(t *testing.T) {
	pacer := pace.New(newRedis(t), 20) // a bucket of two tokens
	start := time.Now()                // before the first token is counted
	if err := pacer.Wait(t.Context(), 1); err != nil {
		t.Fatal(err)
	}
	pacer.Borrow(10)
	pacer.Return(4)
	if err := pacer.Wait(t.Context(), 1); err != nil {
		t.Fatal(err)
	}
	// Six tokens are borrowed and one is taken; the bucket may have two.
	if took := time.Since(start); took < 200*time.Millisecond {
		t.Errorf("the next email after %s, want 250 to 300 ms at 20/s", took)
	}
}

// A debt outlasts a cancelled wait.
func TestPacer_OweAfterCancelledWait(t *testing.T) {
	pacer := pace.New(newRedis(t), 20)
	pacer.Borrow(8)
	start := time.Now()
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if err := pacer.Wait(ctx, 1); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("err = %v, want the context's", err)
	}
	if err := pacer.Wait(t.Context(), 1); err != nil {
		t.Fatal(err)
	}
	// Nine tokens, of which the bucket had two.
	if took := time.Since(start); took < 300*time.Millisecond {
		t.Errorf("the next email after %s, want about 350 ms at 20/s", took)
	}
}

// A waiting caller takes a token that is returned meanwhile.
func TestPacer_ReturnEndsAWait(t *testing.T) {
	pacer := pace.New(newRedis(t), 0.01)
	if err := pacer.Wait(t.Context(), 1); err != nil { // the bucket starts with one token
		t.Fatal(err)
	}
	let := make(chan error, 1)
	go func() { let <- pacer.Wait(t.Context(), 1) }()
	for {
		pacer.Return(1)
		select {
		case err := <-let:
			if err != nil {
				t.Error(err)
			}
			return
		case <-time.After(10 * time.Millisecond):
		case <-t.Context().Done():
			t.Fatal("the token that was returned was not taken")
		}
	}
}
