package breaker_test

import (
	"context"
	"errors"
	"log/slog"
	"testing"

	"github.com/google/uuid"
	"github.com/prometheus/client_golang/prometheus"

	breakerstore "email-gateway/shared/store/breaker"
	"email-gateway/shared/store/storetest"
	"email-gateway/worker/internal/breaker"
	"email-gateway/worker/internal/provider"
)

const paused = "SES_ACCOUNT_SENDING_PAUSED"

func newBreaker(d storetest.Database) *breaker.Breaker { return newBreakerWithReach(d, nil) }

func newBreakerWithReach(d storetest.Database, reach func(context.Context) error) *breaker.Breaker {
	return breaker.New(breaker.Params{
		Log: slog.New(slog.DiscardHandler), Store: d.Store, Instance: "worker-1", Registry: prometheus.NewRegistry(), Reach: reach,
	})
}

const isOpen, isClosed = true, false // of Breaker.IsOpen

func expect(t *testing.T, d storetest.Database, when string, open bool) breakerstore.Breaker {
	t.Helper()
	g, err := d.Store.Breaker(t.Context())
	if err != nil || g.IsOpen != open {
		t.Fatalf("%s: %+v, %v, want open %t", when, g, err, open)
	}
	return g
}

// The account opens the breaker before any email is refused, and closes it.
func TestAccount(t *testing.T) {
	t.Parallel()
	d := storetest.New(t)
	g := newBreaker(d)
	g.Account(t.Context(), "")
	expect(t, d, "it sends", isClosed)
	g.Account(t.Context(), paused)
	expect(t, d, "it may not", isOpen)
	g.Account(t.Context(), "")
	expect(t, d, "it may again", isClosed)
	g.Account(t.Context(), "SES_DAILY_QUOTA_EXCEEDED")
	if now := expect(t, d, "its quota is spent", isOpen); *now.Reason != "SES_DAILY_QUOTA_EXCEEDED" {
		t.Errorf("breaker = %+v", now)
	}
}

// A probe that succeeds overrides an account that still reports a refusal, until the account's
// report changes.
func TestAccount_ProbeOverridesAccount(t *testing.T) {
	t.Parallel()
	d := storetest.New(t)
	g := newBreaker(d)
	g.Account(t.Context(), paused)
	now := expect(t, d, "it may not", isOpen)
	g.Answered(breaker.Call{Email: uuid.New(), Attempt: uuid.New(), Pass: breakerstore.Pass{Probe: true, Openings: now.Openings}})
	expect(t, d, "a probe passed", isClosed)
	g.Account(t.Context(), paused)
	expect(t, d, "it says so still", isClosed)
	g.Account(t.Context(), "")
	g.Account(t.Context(), paused)
	expect(t, d, "it says so anew", isOpen)
}

// The refusal of a probe's own email does not override the account: the provider may check the email before the account.
func TestAccount_RefusedProbeDoesNotOverrideAccount(t *testing.T) {
	t.Parallel()
	d := storetest.New(t)
	g := newBreaker(d)
	rejected := &provider.Failure{Outcome: provider.Failed, Code: "SES_MESSAGE_REJECTED", Category: provider.PermanentError}
	probe := func() breaker.Call {
		openings := expect(t, d, "before the probe", isOpen).Openings
		return breaker.Call{Email: uuid.New(), Attempt: uuid.New(), Pass: breakerstore.Pass{Probe: true, Openings: openings}}
	}
	g.Account(t.Context(), paused)
	if g.Failed(probe(), rejected) {
		t.Error("the try of the refused email does not count")
	}
	g.Answered(probe())
	expect(t, d, "a probe passed", isClosed)

	g.Failed(breaker.Call{Email: uuid.New(), Attempt: uuid.New(), Pass: breakerstore.Pass{Openings: 1}}, &provider.Failure{
		Outcome: provider.Failed, Code: paused, Category: provider.PermanentError, AccountWide: true,
	})
	g.Failed(probe(), rejected)
	expect(t, d, "a refused probe, after an email had opened it", isClosed)
}

// A promoted standby has not received the opening: the account's refusal opens the breaker again.
func TestAccount_OpeningLost(t *testing.T) {
	t.Parallel()
	d := storetest.New(t)
	g := newBreaker(d)
	g.Account(t.Context(), paused)
	expect(t, d, "it may not", isOpen)
	if _, err := d.SQL.ExecContext(t.Context(), `UPDATE provider_gate SET state = 'open', reason = NULL, shuts = shuts - 1, probe_at = NULL`); err != nil {
		t.Fatal(err)
	}
	expect(t, d, "after the failover", isClosed)
	g.Account(t.Context(), paused)
	expect(t, d, "it may not still", isOpen)
}

// The failure of an email overrides the account's report.
func TestAccount_EmailFailureOverridesAccount(t *testing.T) {
	t.Parallel()
	d := storetest.New(t)
	g := newBreaker(d)
	notCounted := g.Failed(breaker.Call{Email: uuid.New(), Attempt: uuid.New()}, &provider.Failure{
		Outcome: provider.Failed, Code: paused, Category: provider.PermanentError, AccountWide: true,
	})
	expect(t, d, "an email was refused", isOpen)
	if notCounted {
		t.Error("the try of the email that opened it does not count")
	}
	g.Account(t.Context(), "")
	expect(t, d, "the account says that it sends", isOpen)
}

// A probe that fails in an outage after another probe has closed the breaker does not count as a
// try.
func TestFailed_ProbeAfterClose(t *testing.T) {
	t.Parallel()
	d := storetest.New(t)
	g := newBreaker(d)
	g.Account(t.Context(), paused)
	pass := breakerstore.Pass{Probe: true, Openings: expect(t, d, "it may not", isOpen).Openings}
	g.Answered(breaker.Call{Email: uuid.New(), Attempt: uuid.New(), Pass: pass})
	late := &provider.Failure{Outcome: provider.Unknown, Code: "SES_TIMEOUT", Category: provider.TimeoutError, Outage: true}
	if !g.Failed(breaker.Call{Email: uuid.New(), Attempt: uuid.New(), Pass: pass}, late) {
		t.Error("the late probe's try counts")
	}
	expect(t, d, "a late probe", isClosed)
}

// While an outage is only suspected, the last try of an email does not count.
func TestFailed_LastTryInSuspectedOutage(t *testing.T) {
	t.Parallel()
	d := storetest.New(t)
	g := newBreaker(d)
	broken := &provider.Failure{Outcome: provider.Unknown, Code: "SES_INTERNAL_ERROR", Category: provider.TransientError, Outage: true}
	for i := range 8 {
		notCounted := g.Failed(breaker.Call{Email: uuid.New(), Attempt: uuid.New(), Last: i%2 == 0}, broken)
		if want := i >= 5 && i%2 == 0; notCounted != want {
			t.Errorf("call %d: notCounted %v, want %v", i+1, notCounted, want)
		}
	}
	expect(t, d, "eight calls", isClosed)
}

// The last try of a single email does not count while the provider does not answer the account call
// either. If it does, the email is the cause. The breaker stays closed in both cases.
func TestFailed_LastTryOfSingleEmail(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		reach      func(context.Context) error
		notCounted bool
	}{
		"the provider is down": {func(context.Context) error { return errors.New("connection refused") }, true},
		"it answers":           {func(context.Context) error { return nil }, false},
		"it cannot be asked":   {nil, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := storetest.New(t)
			asked := 0
			g := newBreakerWithReach(d, c.reach)
			if c.reach != nil {
				g = newBreakerWithReach(d, func(ctx context.Context) error {
					if asked++; ctx.Err() != nil {
						t.Error("called without a timeout")
					}
					return c.reach(ctx)
				})
			}
			away := &provider.Failure{Outcome: provider.Retry, Code: "NETWORK_ERROR", Category: provider.TransientError, Outage: true}
			id := uuid.New()
			for try := range 7 {
				last := try >= 4
				if notCounted := g.Failed(breaker.Call{Email: id, Attempt: uuid.New(), Last: last}, away); notCounted != (last && c.notCounted) {
					t.Errorf("try %d: notCounted %v", try+1, notCounted)
				}
			}
			expect(t, d, "seven tries of one email", isClosed)
			if asked > 1 {
				t.Errorf("the provider was called %d times within a moment", asked)
			}
		})
	}
}
