package pace

import (
	"context"
	"math"
	"os"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

// clock is a time that the test sets.
type clock struct{ t time.Time }

func (c *clock) now() time.Time { return c.t }

func newPacer(client redis.Cmdable, full float64) (*Pacer, *clock) {
	c := &clock{t: time.Now()}
	p := New(client, full)
	p.now = c.now
	return p, c
}

func (p *Pacer) expect(t *testing.T, when string, least, most float64) {
	t.Helper()
	if got := p.Rate(); got < least || got > most {
		t.Errorf("%s: %.2f/s, want %.2f to %.2f", when, got, least, most)
	}
}

// A throttling answer halves the rate; it is back within a minute and never falls meanwhile.
func TestThrottled_HalvesAndRecovers(t *testing.T) {
	t.Parallel()
	p, c := newPacer(nil, 100)
	p.Throttled(c.t)
	p.expect(t, "at once", 50, 50)
	select {
	case <-p.Changed():
	default:
		t.Error("the change is not announced")
	}
	last := p.Rate()
	for range 59 {
		c.t = c.t.Add(time.Second)
		if now := p.Rate(); now < last {
			t.Fatalf("fell from %v to %v", last, now)
		}
		last = p.Rate()
	}
	c.t = c.t.Add(time.Second)
	p.expect(t, "a minute later", 100, 100)
}

// The answers of one burst halve the rate once, as do those to calls that began before.
func TestThrottled_OncePerBurst(t *testing.T) {
	t.Parallel()
	p, c := newPacer(nil, 100)
	start := c.t.Add(-time.Millisecond)
	for range 64 {
		p.Throttled(start)
		c.t = c.t.Add(10 * time.Millisecond)
	}
	p.expect(t, "after a burst", 50, 55)
	c.t = c.t.Add(10 * time.Second)
	p.Throttled(start) // a call that took 10 s
	p.expect(t, "after a slow answer", 75, 100)
	for range 100 {
		c.t = c.t.Add(time.Second)
		p.Throttled(c.t)
	}
	p.expect(t, "after throttling for long", minRate, 2)
}

// Five seconds in which every call is refused say nothing about the rate that the provider accepts
// afterwards. Meanwhile ever fewer calls are made.
func TestThrottled_RecoversAfterAllRefused(t *testing.T) {
	t.Parallel()
	p, c := newPacer(nil, 500)
	p.Accepted(c.t.Add(-time.Millisecond))
	for range 5 {
		p.Throttled(c.t)
		c.t = c.t.Add(cutPause)
	}
	p.expect(t, "after five cuts", 500.0/32, 65)
	c.t = c.t.Add(10 * time.Second)
	p.expect(t, "ten seconds later", 250, 500)
	for range 60 {
		p.Throttled(c.t)
		c.t = c.t.Add(cutPause)
	}
	p.expect(t, "after a minute", minRate, 2)
}

// A refusal after accepted calls since the last cut concerns the rate.
func TestThrottled_ReturnsToRefusedRate(t *testing.T) {
	t.Parallel()
	p, c := newPacer(nil, 500)
	for range 5 {
		p.Throttled(c.t)
		p.Accepted(c.t)
		c.t = c.t.Add(cutPause)
	}
	c.t = c.t.Add(10 * time.Second)
	p.expect(t, "ten seconds later", 10, 60)
}

func TestThrottled_BelowOnePerSecond(t *testing.T) {
	t.Parallel()
	p, c := newPacer(nil, 0.5)
	p.Throttled(c.t)
	p.expect(t, "not above what the account allows", 0.5, 0.5)
	p.SetRate(0.25)
	p.expect(t, "nor after it allows less", 0.25, 0.25)
}

// The provider accepts 20/s while its account reports 100/s: the pacer finds and uses the 20, and
// does not return to 100.
func TestThrottled_FindsAcceptedRate(t *testing.T) {
	t.Parallel()
	const accepts, step = 20.0, 10 * time.Millisecond
	p, c := newPacer(nil, 100)
	start := c.t
	bucket, due, sent, refused := accepts, 0.0, 0.0, 0.0
	for c.t.Sub(start) < 5*time.Minute {
		c.t = c.t.Add(step)
		bucket = math.Min(accepts, bucket+accepts*step.Seconds())
		settled := c.t.Sub(start) > 10*time.Second
		if settled {
			p.expect(t, c.t.Sub(start).String(), accepts/2.5, accepts*1.5)
		}
		for due += p.Rate() * step.Seconds(); due >= 1; due-- {
			switch {
			case bucket < 1:
				p.Throttled(c.t)
				if settled {
					refused++
				}
			default:
				bucket--
				p.Accepted(c.t)
				if settled {
					sent++
				}
			}
		}
	}
	most := accepts * (5*time.Minute - 10*time.Second).Seconds()
	t.Logf("%.0f of %.0f sent, %.0f refused", sent, most, refused)
	if sent < 0.85*most || refused > 0.05*sent {
		t.Errorf("%.0f of %.0f sent, %.0f refused", sent, most, refused)
	}
}

// sharedRedis is the test server without the bucket's key. The key is fixed, so tests that use it
// do not run in parallel.
func sharedRedis(t *testing.T) (client *redis.Client, forget func()) {
	t.Helper()
	o, err := redis.ParseURL(os.Getenv("REDIS_URL"))
	if err != nil {
		t.Fatalf("REDIS_URL: %v; run the tests through ./scripts/test.sh", err)
	}
	client = redis.NewClient(o)
	t.Cleanup(func() { _ = client.Close() })
	forget = func() {
		if err := client.Del(context.WithoutCancel(t.Context()), key).Err(); err != nil {
			t.Fatal(err)
		}
	}
	forget()
	t.Cleanup(forget)
	return client, forget
}

// age moves the last cut in Redis into the past.
func age(t *testing.T, client *redis.Client, by time.Duration) {
	t.Helper()
	at, err := client.HGet(t.Context(), key, "cut_at").Int64()
	if err != nil {
		t.Fatal(err)
	}
	if err := client.HSet(t.Context(), key, "cut_at", at-by.Microseconds()).Err(); err != nil {
		t.Fatal(err)
	}
}

// A refusal of one process's call slows all of them down, once.
func TestThrottled_SharedThroughRedis(t *testing.T) {
	client, _ := sharedRedis(t)
	one, other := New(client, 100), New(client, 100)
	one.Throttled(time.Now())
	one.expect(t, "the one that was refused", 50, 55)
	other.Throttled(time.Now()) // of the same burst, before it knows the cut
	other.expect(t, "another that was refused", 50, 55)
	third := New(client, 100)
	if err := third.Wait(t.Context(), 1); err != nil {
		t.Fatal(err)
	}
	third.expect(t, "one that sends", 50, 55)

	// Two seconds later one of them is refused again.
	age(t, client, 2*time.Second)
	fresh := New(client, 100) // it does not know that the rate is no longer 100
	fresh.Throttled(time.Now())
	if low := fresh.last.Load().low; low < 25 || low > 35 {
		t.Errorf("cut again to %.2f/s, want 25 to 35", low)
	}
	for third.last.Load().redisTime != fresh.last.Load().redisTime { // the one that sends
		if err := third.Wait(t.Context(), 1); err != nil {
			t.Fatal(err)
		}
	}
	if got, want := third.last.Load(), fresh.last.Load(); got.low != want.low || got.from != want.from {
		t.Errorf("another process cuts from %.2f/s to %.2f/s, want %.2f/s to %.2f/s", got.from, got.low, want.from, want.low)
	}
}

// A process that cut the rate before Redis lost the key shares its next cut with the others.
func TestThrottled_SharedAfterRedisLostCut(t *testing.T) {
	client, forget := sharedRedis(t)
	one, c := newPacer(client, 100)
	other := New(client, 100)
	one.Throttled(c.t)
	forget()
	c.t = c.t.Add(2 * time.Minute)
	one.Throttled(c.t)
	one.expect(t, "the process that cuts", 50, 50)
	if one.last.Load().redisTime == "" {
		t.Error("the cut is local")
	}
	if err := other.Wait(t.Context(), 1); err != nil {
		t.Fatal(err)
	}
	other.expect(t, "another process", 50, 55)
}

// A slow call that began before another process's cut does not cut the rate again.
func TestThrottled_CallBeforeOtherProcessCut(t *testing.T) {
	client, _ := sharedRedis(t)
	start := time.Now().Add(-10 * time.Second)
	one, slow := New(client, 100), New(client, 100)
	one.Throttled(time.Now())
	age(t, client, 5*time.Second)
	slow.Throttled(start)
	slow.expect(t, "the process of the slow call", 70, 80) // 71 after 5 s
	third := New(client, 100)
	if err := third.Wait(t.Context(), 1); err != nil {
		t.Fatal(err)
	}
	third.expect(t, "another process", 70, 80)
}

// Without Redis each process uses its share of the current rate.
func TestThrottled_WithoutRedis(t *testing.T) {
	t.Parallel()
	unreachable := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1", MaxRetries: -1, DialTimeout: 50 * time.Millisecond})
	t.Cleanup(func() { _ = unreachable.Close() })
	p := New(unreachable, 100)
	p.SetProcesses(4)
	p.Throttled(time.Now())
	if err := p.Wait(t.Context(), 1); err != nil {
		t.Fatal(err)
	}
	if got := float64(p.own.Limit()); got < 12 || got > 15 {
		t.Errorf("%v/s, want a quarter of 50", got)
	}
}

// Tokens of an idle process and those produced meanwhile are at most a burst.
func TestWait_ReturnsOldTokens(t *testing.T) {
	client, _ := sharedRedis(t)
	p := New(client, 1)
	if err := p.Wait(t.Context(), 1); err != nil {
		t.Fatal(err)
	}
	p.Return(1)
	// 0.9 s pass without use.
	p.fresh = p.fresh.Add(-900 * time.Millisecond)
	at, err := client.HGet(t.Context(), key, "at").Int64()
	if err != nil {
		t.Fatal(err)
	}
	if err := client.HSet(t.Context(), key, "at", at-900_000).Err(); err != nil {
		t.Fatal(err)
	}
	if err := p.Wait(t.Context(), 1); err != nil {
		t.Fatal(err)
	}
	start := time.Now()
	if err := p.Wait(t.Context(), 1); err != nil {
		t.Fatal(err)
	}
	if took := time.Since(start); took < 800*time.Millisecond {
		t.Errorf("the second email %s after the first, want 1 s at 1/s", took)
	}
}

// An accepted call of another process means that the refusal concerns the rate.
func TestThrottled_AcceptedByAnotherProcess(t *testing.T) {
	client, _ := sharedRedis(t)
	one, other := New(client, 100), New(client, 100)
	one.Throttled(time.Now())
	age(t, client, 5*time.Second)
	other.Accepted(time.Now())
	if err := other.Wait(t.Context(), 1); err != nil {
		t.Fatal(err)
	}
	refused := New(client, 100)
	refused.Throttled(time.Now())
	if from := refused.last.Load().from; from > 85 { // 71 after 5 s
		t.Errorf("the rate returns to %.2f/s, want the refused rate", from)
	}
}

// A cut that is ahead of Redis's clock, which was set back, neither slows the processes down nor prevents the next cut.
func TestThrottled_AfterRedisClockSetBack(t *testing.T) {
	client, _ := sharedRedis(t)
	now, err := client.Time(t.Context()).Result()
	if err != nil {
		t.Fatal(err)
	}
	ahead := now.Add(time.Hour).UnixMicro()
	if err := client.HSet(t.Context(), key, "cut_at", ahead, "cut_from", 500, "cut_low", 5, "accepted_at", ahead).Err(); err != nil {
		t.Fatal(err)
	}
	sending, throttled := New(client, 500), New(client, 500)
	if err := sending.Wait(t.Context(), 1); err != nil {
		t.Fatal(err)
	}
	sending.expect(t, "a process that sends", 500, 500)
	throttled.Throttled(time.Now())
	throttled.expect(t, "a process that is throttled", 250, 300)

	// Nothing was accepted since that cut.
	age(t, client, 5*time.Second)
	next := New(client, 500)
	next.Throttled(time.Now())
	if from := next.last.Load().from; from != 500 {
		t.Errorf("the rate returns to %.2f/s, want 500/s", from)
	}
}
