package inflight

import (
	"context"
	"log/slog"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// load is a limiter under load: tokens arrive at a rate, tasks are ready, and each email takes some
// time.
type load struct {
	limiter  *Limiter
	pacer    *pacer
	latency  atomic.Int64 // nanoseconds
	inFlight atomic.Int64 // as reported by the limiter
	sent     atomic.Int64
}

func newLoad(t *testing.T, rate float64, latency time.Duration) *load {
	t.Helper()
	return newFixedLoad(t, 0, rate, latency)
}

// newFixedLoad is newLoad with a fixed limit; 0 = it follows the rate.
func newFixedLoad(t *testing.T, fixed int, rate float64, latency time.Duration) *load {
	t.Helper()
	l := &load{pacer: &pacer{rate: rate, let: make(chan struct{})}}
	l.latency.Store(int64(latency))
	l.limiter = New(Params{
		Log: slog.New(slog.DiscardHandler), Pacer: l.pacer, Suspension: &suspension{}, Fixed: fixed, Min: 10, Max: 512,
		InFlight: func(emails int) { l.inFlight.Store(int64(emails)) }, Registry: prometheus.NewRegistry(),
	})
	if err := l.limiter.Start(t.Context(), func(err error) { t.Error(err) }); err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	var working sync.WaitGroup
	working.Go(func() { l.pacer.run(ctx) })
	working.Go(func() { l.work(ctx) })
	t.Cleanup(func() {
		stop()
		working.Wait()
		if err := l.limiter.Stop(context.Background()); err != nil {
			t.Error(err)
		}
	})
	return l
}

// run produces tokens at the rate.
func (p *pacer) run(ctx context.Context) {
	for {
		select {
		case <-time.After(time.Duration(float64(time.Second) / p.OwnRate())):
		case <-ctx.Done():
			return
		}
		select {
		case p.let <- struct{}{}:
		case <-ctx.Done():
			return
		}
	}
}

// work takes and ends emails like one Server.
func (l *load) work(ctx context.Context) {
	var ending sync.WaitGroup
	defer ending.Wait()
	for {
		at, err := l.limiter.Admit(ctx, 0, pending)
		if err != nil {
			return
		}
		l.limiter.Used(at)
		ending.Go(func() {
			latency := time.Duration(l.latency.Load())
			l.limiter.Begin()
			<-time.After(latency)
			l.sent.Add(1)
			l.limiter.Sent(latency)
			l.limiter.End()
		})
	}
}

// throughput measures the emails sent per second from now on.
func (l *load) throughput(length time.Duration) float64 {
	before := l.sent.Load()
	<-time.After(length)
	synctest.Wait()
	return float64(l.sent.Load()-before) / length.Seconds()
}

// The limit follows the latency: within seconds, or within ten times a latency of many seconds.
func TestLimiter_Follows(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		rate        float64
		latency     time.Duration
		least, most int
		begin       time.Duration // until the limit is found
	}{
		"14/s at 50 ms":   {14, 50 * time.Millisecond, 10, 10, 20 * time.Second},
		"500/s at 100 ms": {500, 100 * time.Millisecond, 50, 79, 20 * time.Second},
		"500/s at 1 s":    {500, time.Second, 500, 512, 20 * time.Second},
		"10/s at 25 s":    {10, 25 * time.Second, 250, 379, 4 * time.Minute},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				l := newLoad(t, tt.rate, tt.latency)
				l.throughput(tt.begin)
				if got := l.throughput(10 * time.Second); got < 0.95*tt.rate {
					t.Errorf("%.1f emails/s, want %.0f", got, tt.rate)
				}
				if limit := l.limiter.Limit(); limit < tt.least || limit > tt.most {
					t.Errorf("limit %d, want %d to %d", limit, tt.least, tt.most)
				}
				if emails, want := float64(l.inFlight.Load()), tt.rate*tt.latency.Seconds(); emails < 0.9*want-1 || emails > 1.1*want+2 {
					t.Errorf("%.0f emails in flight, want %.1f", emails, want)
				}
			})
		})
	}
}

// Calls that took long, as in an outage, do not leave a large window for the time after a pause.
func TestLimiter_NeededAfterAPause(t *testing.T) {
	t.Parallel()
	for name, fixed := range map[string]int{"automatic": 0, "fixed": 256} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				l := newFixedLoad(t, fixed, 14, 20*time.Second)
				l.throughput(3 * time.Minute)
				if got := l.limiter.Needed(); got < 10*time.Second {
					t.Fatalf("%s while calls take 20 s", got)
				}
				l.pacer.setRate(0.001)
				l.throughput(2 * forgetAfter)
				if got, most := l.limiter.Needed(), assumedLatency*3/2; got > most {
					t.Errorf("%s after a pause, want at most %s", got, most)
				}
			})
		})
	}
}

// The window follows what the rate needs at the measured latency, whether the limit is fixed or follows the rate, and never more
// than the limit. A fixed limit does not change.
func TestLimiter_Needed(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		fixed         int
		rate          float64
		latency, want time.Duration
	}{
		"14/s at 50 ms":              {0, 14, 50 * time.Millisecond, 75 * time.Millisecond},
		"0.28/s at 50 ms":            {0, 0.28, 50 * time.Millisecond, 75 * time.Millisecond},
		"500/s at 100 ms":            {0, 500, 100 * time.Millisecond, 150 * time.Millisecond},
		"256, 14/s at 50 ms":         {256, 14, 50 * time.Millisecond, 75 * time.Millisecond},
		"256, 14/s at 5 s":           {256, 14, 5 * time.Second, 7500 * time.Millisecond},
		"256, 500/s at 100 ms":       {256, 500, 100 * time.Millisecond, 150 * time.Millisecond},
		"64, more than it can send":  {64, 2000, 100 * time.Millisecond, 32 * time.Millisecond},
		"600, more than it can send": {600, 2000, 500 * time.Millisecond, 300 * time.Millisecond},
		"256, nothing sent yet":      {256, 14, time.Hour, assumedLatency * 3 / 2},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				l := newFixedLoad(t, tt.fixed, tt.rate, tt.latency)
				first := time.Duration(float64(l.limiter.Limit()) / tt.rate * float64(time.Second))
				if got, want := l.limiter.Needed(), min(assumedLatency*3/2, first); got != want {
					t.Errorf("%s before the latency is known, want %s", got, want)
				}
				l.throughput(20 * time.Second)
				if got := l.limiter.Needed(); got < tt.want || got > tt.want+tt.want/100 {
					t.Errorf("%s, want %s", got, tt.want)
				}
				if got := l.limiter.Limit(); tt.fixed > 0 && got != tt.fixed {
					t.Errorf("the limit is %d, want %d", got, tt.fixed)
				}
			})
		})
	}
}

// Hanging calls do not raise the limit: calls that are not accepted say nothing about the
// provider's latency, and the window follows the limit.
func TestLimiter_HangingCalls(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := newLoad(t, 14, 50*time.Millisecond)
		l.throughput(10 * time.Second)
		l.latency.Store(int64(30 * time.Second))
		l.throughput(29 * time.Second)
		if limit := l.limiter.Limit(); limit != 10 {
			t.Errorf("limit %d while calls hang, want 10", limit)
		}
	})
}

// A step up is not reverted before the emails it admitted have ended.
func TestLimiter_StepsUpAtLongLatency(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := newLoad(t, 1, 25*time.Second)
		l.throughput(5 * time.Minute)
		l.pacer.setRate(12)
		l.throughput(5 * time.Minute)
		if got := l.throughput(30 * time.Second); got < 11.4 {
			t.Errorf("%.1f emails/s, want 12", got)
		}
	})
}
