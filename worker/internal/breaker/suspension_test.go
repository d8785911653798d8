package breaker_test

import (
	"context"
	"log/slog"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/prometheus/client_golang/prometheus"

	breakerstore "email-gateway/shared/store/breaker"
	"email-gateway/shared/store/storetest"
	"email-gateway/worker/internal/breaker"
	"email-gateway/worker/internal/provider"
)

// A worker opens the breaker for a fault of its own, once: after another worker's probe has closed
// it, no failure of the first one opens it again or counts as a try, until SES accepts one of its emails.
func TestFailed_OfOneWorkerAlone(t *testing.T) {
	t.Parallel()
	for name, f := range map[string]provider.Failure{
		"credentials":           {Outcome: provider.Park, Code: "SES_AUTH_FAILED", Category: provider.ConfigurationError},
		"permission":            {Outcome: provider.Park, Ambiguous: true, Code: "SES_ACCESS_DENIED", Category: provider.ConfigurationError},
		"network":               {Outcome: provider.Retry, Outage: true, Code: "NETWORK_ERROR", Category: provider.TransientError},
		"responses are lost":    {Outcome: provider.Unknown, Outage: true, Code: "SES_TIMEOUT", Category: provider.TimeoutError},
		"another account":       {Outcome: provider.Failed, AccountWide: true, Code: paused, Category: provider.PermanentError},
		"another server's 200s": {Outcome: provider.Unreadable, Code: "SES_RESPONSE_UNREADABLE", Category: provider.TransientError},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := storetest.New(t)
			faulty, healthy := newBreakerNamed(d, "worker-1"), newBreakerNamed(d, "worker-2")
			call := func(probe bool) breaker.Call {
				state, err := d.Store.Breaker(t.Context())
				if err != nil {
					t.Fatal(err)
				}
				return breaker.Call{
					Email: uuid.New(), Attempt: uuid.New(), Sender: "a@x.example", Began: time.Now(),
					Pass: breakerstore.Pass{Openings: state.Openings, Probe: probe},
				}
			}
			for range 20 { // enough failures for any kind
				if c := call(false); c.Pass.Openings == 0 {
					faulty.Failed(c, &f)
				}
			}
			expect(t, d, "the faulty worker has failed", isOpen)
			if err := faulty.Suspension().Suspended(); err != nil {
				t.Errorf("while all may be concerned: %v", err)
			}
			healthy.Answered(call(true))
			expect(t, d, "the healthy worker's probe", isClosed)

			for range 40 {
				if unspent := faulty.Failed(call(false), &f); !unspent && f.Outcome != provider.Unreadable {
					t.Fatal("a try counts")
				}
			}
			if now := expect(t, d, "the faulty worker fails again", isClosed); now.Openings != 1 {
				t.Errorf("opened %d times", now.Openings)
			}
			if faulty.Suspension().Suspended() == nil || healthy.Suspension().Suspended() != nil {
				t.Error("want the faulty worker suspended alone")
			}

			faulty.Answered(call(false))
			if err := faulty.Suspension().Suspended(); err != nil {
				t.Errorf("after an accepted email: %v", err)
			}
			for range 20 {
				if c := call(false); c.Pass.Openings == 1 {
					c.Sender = uuid.NewString() + "@y.example"
					faulty.Failed(c, &f)
				}
			}
			expect(t, d, "a new fault", isOpen)
		})
	}
}

// A suspended worker whose network leads to another server makes no calls, whose responses would fail their emails.
func TestWithhold_Suspended(t *testing.T) {
	t.Parallel()
	d := storetest.New(t)
	unreadable := provider.Failure{Outcome: provider.Unreadable, Code: "SES_RESPONSE_UNREADABLE", Category: provider.TransientError}
	faulty := newBreakerWithReach(d, func(context.Context) error { return &unreadable })
	fail := func() {
		for range 3 {
			state, err := d.Store.Breaker(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			c := breaker.Call{Email: uuid.New(), Attempt: uuid.New(), Began: time.Now(), Pass: breakerstore.Pass{Openings: state.Openings}}
			if faulty.Suspension().Suspended() == nil && faulty.Withhold(c) != nil {
				t.Error("a call is withheld from a worker that is not suspended")
			}
			faulty.Failed(c, &unreadable)
		}
	}
	fail()
	now := expect(t, d, "three responses", isOpen)
	newBreakerNamed(d, "worker-2").Answered(breaker.Call{Began: time.Now(), Pass: breakerstore.Pass{Probe: true, Openings: now.Openings}})
	fail()
	if faulty.Suspension().Suspended() == nil {
		t.Fatal("not suspended")
	}
	c := breaker.Call{Email: uuid.New(), Began: time.Now(), Pass: breakerstore.Pass{Openings: now.Openings}}
	f := faulty.Withhold(c)
	if f == nil || f.Outcome != provider.Park || f.Code != unreadable.Code {
		t.Fatalf("withheld: %v", f)
	}
	if notCounted := faulty.Failed(c, f); !notCounted {
		t.Error("the try counts")
	}
	if now := expect(t, d, "the withheld call", isClosed); now.Openings != 1 {
		t.Errorf("opened %d times", now.Openings)
	}
}

// A probe is made although another server answers GetAccount, unless that server has answered emails too: an endpoint in front of
// SES may not support the call.
func TestWithhold_OnlyAfterUnreadableResponses(t *testing.T) {
	t.Parallel()
	d := storetest.New(t)
	unreadable := provider.Failure{Outcome: provider.Unreadable, Code: "SES_RESPONSE_UNREADABLE", Category: provider.TransientError}
	b := newBreakerWithReach(d, func(context.Context) error { return &unreadable })
	probe := func() breaker.Call {
		b.ReadState(t.Context())
		state, err := d.Store.Breaker(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return breaker.Call{Email: uuid.New(), Attempt: uuid.New(), Began: time.Now(), Pass: breakerstore.Pass{Openings: state.Openings, Probe: state.IsOpen}}
	}
	expectWithheld := func(when string, want bool) {
		t.Helper()
		if got := b.Withhold(probe()) != nil; got != want {
			t.Errorf("%s: withheld %v", when, got)
		}
	}
	b.Failed(probe(), &provider.Failure{Outcome: provider.Park, Code: "SES_SIGNATURE", Category: provider.ConfigurationError})
	expect(t, d, "another reason", isOpen)
	expectWithheld("another reason", false)
	b.Failed(probe(), &unreadable)
	expectWithheld("an unreadable response", true)
	b.Answered(probe())
	expect(t, d, "an accepted probe", isClosed)

	other := newBreakerNamed(d, "worker-2")
	for range 3 {
		other.Failed(probe(), &unreadable)
	}
	expect(t, d, "unreadable responses of another worker", isOpen)
	expectWithheld("unreadable responses of another worker", true)
}

// A refusal that may concern only its sender opens the breaker once for all workers: after the account has accepted
// another sender's probe, refusals of the first one are its own, also in workers that have not seen it before.
func TestFailed_OneSenderOfManyWorkers(t *testing.T) {
	t.Parallel()
	d := storetest.New(t)
	refused := provider.Failure{Outcome: provider.Park, Ambiguous: true, Code: "SES_ACCESS_DENIED", Category: provider.ConfigurationError}
	call := func(sender string, probe bool) breaker.Call {
		state, err := d.Store.Breaker(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return breaker.Call{
			Email: uuid.New(), Attempt: uuid.New(), Company: uuid.New(), Sender: sender, Began: time.Now(),
			Pass: breakerstore.Pass{Openings: state.Openings, Probe: probe},
		}
	}
	first := newBreakerNamed(d, "worker-0")
	if notCounted := first.Failed(call("shop@x.example", false), &refused); !notCounted {
		t.Error("the try that opens the breaker counts")
	}
	expect(t, d, "the first refusal", isOpen)
	newBreakerNamed(d, "worker-1").Answered(call("shop@y.example", true))
	expect(t, d, "another sender's probe", isClosed)
	for i := range 5 {
		worker := newBreakerNamed(d, "worker-2")
		if i == 0 {
			worker = first
		}
		for range 2 {
			if notCounted := worker.Failed(call("news@x.example", false), &refused); notCounted {
				t.Error("a try of the refused sender does not count")
			}
		}
		if now := expect(t, d, "another worker", isClosed); now.Openings != 1 || worker.Suspension().Suspended() != nil {
			t.Fatalf("worker %d: opened %d times, suspended: %v", i, now.Openings, worker.Suspension().Suspended())
		}
		if i < 4 {
			continue
		}
		accepting := newBreakerNamed(d, "worker-4") // which has seen no refusal
		accepting.ReadState(t.Context())
		accepting.Answered(call("news@x.example", false)) // the sender is allowed now
		newBreakerNamed(d, "worker-3").Failed(call("shop@x.example", false), &refused)
		expect(t, d, "the address that is still refused", isClosed)
		newBreakerNamed(d, "worker-3").Failed(call("news@x.example", false), &refused)
		expect(t, d, "refused after it was accepted", isOpen)
	}
	newBreakerNamed(d, "worker-1").Answered(call("shop@y.example", true))
	if notCounted := first.Failed(call("shop@z.example", false), &refused); !notCounted || first.Suspension().Suspended() == nil {
		t.Errorf("a second sender is refused to the first worker alone: the try does not count: %v, suspended: %v", notCounted, first.Suspension().Suspended())
	}
	expect(t, d, "a second sender's refusal", isClosed)
}

// A worker whose probe the provider rejects, and then another worker's is accepted, need not open the breaker to suspend itself.
func TestFailed_ProbeOfOneWorkerAlone(t *testing.T) {
	t.Parallel()
	rejected := provider.Failure{Outcome: provider.Park, Code: "SES_AUTH_FAILED", Category: provider.ConfigurationError}
	ambiguous := provider.Failure{Outcome: provider.Park, Ambiguous: true, Code: "SES_ACCESS_DENIED", Category: provider.ConfigurationError}
	for name, c := range map[string]struct {
		byAccount bool
		probe     provider.Failure
		want      bool // suspended by its next failure
	}{
		"rejected":                               {probe: rejected, want: true},
		"its sender may be the cause":            {probe: ambiguous},
		"an outage":                              {probe: provider.Failure{Outcome: provider.Retry, Outage: true, Code: "NETWORK_ERROR", Category: provider.TransientError}},
		"the account has opened it (one worker)": {byAccount: true, probe: rejected},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := storetest.New(t)
			faulty, other := newBreakerNamed(d, "worker-1"), newBreakerNamed(d, "worker-2")
			call := func(probe bool) breaker.Call {
				state, err := d.Store.Breaker(t.Context())
				if err != nil {
					t.Fatal(err)
				}
				return breaker.Call{
					Email: uuid.New(), Attempt: uuid.New(), Sender: uuid.NewString() + "@x.example", Began: time.Now(),
					Pass: breakerstore.Pass{Openings: state.Openings, Probe: probe},
				}
			}
			if c.byAccount {
				other.Account(t.Context(), paused)
			} else {
				other.Failed(call(false), &rejected)
			}
			expect(t, d, "opened", isOpen)
			if notCounted := faulty.Failed(call(true), &c.probe); !notCounted {
				t.Error("the probe's try counts")
			}
			if c.byAccount {
				other.Account(t.Context(), "")
			} else {
				other.Answered(call(true))
			}
			expect(t, d, "closed", isClosed)
			if notCounted := faulty.Failed(call(false), &rejected); !notCounted {
				t.Error("the next try counts")
			}
			if suspended := faulty.Suspension().Suspended() != nil; suspended != c.want {
				t.Errorf("suspended: %v", suspended)
			}
			expect(t, d, "the next failure", !c.want)
		})
	}
}

func newBreakerNamed(d storetest.Database, instance string) *breaker.Breaker {
	return breaker.New(breaker.Params{
		Log: slog.New(slog.DiscardHandler), Store: d.Store, Instance: instance, Registry: prometheus.NewRegistry(),
	})
}
