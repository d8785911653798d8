package gate_test

import (
	"context"
	"errors"
	"log/slog"
	"testing"

	"github.com/google/uuid"
	"github.com/prometheus/client_golang/prometheus"

	"email-gateway/shared/store"
	"email-gateway/shared/store/storetest"
	"email-gateway/worker/internal/gate"
	"email-gateway/worker/internal/provider"
)

const paused = "SES_ACCOUNT_SENDING_PAUSED"

func newGate(d storetest.Database) *gate.Gate { return newGateWithReach(d, nil) }

func newGateWithReach(d storetest.Database, reach func(context.Context) error) *gate.Gate {
	return gate.New(gate.Params{
		Log: slog.New(slog.DiscardHandler), Store: d.Store, Instance: "worker-1", Registry: prometheus.NewRegistry(), Reach: reach,
	})
}

func expect(t *testing.T, d storetest.Database, when string, state store.GateState) store.Gate {
	t.Helper()
	g, err := d.Store.Gate(t.Context())
	if err != nil || g.State != state {
		t.Fatalf("%s: %+v, %v, want %s", when, g, err, state)
	}
	return g
}

// The account parks sending before any email is refused, and resumes it.
func TestAccount(t *testing.T) {
	t.Parallel()
	d := storetest.New(t)
	g := newGate(d)
	g.Account(t.Context(), "")
	expect(t, d, "it sends", store.GateOpen)
	g.Account(t.Context(), paused)
	expect(t, d, "it may not", store.GateShut)
	g.Account(t.Context(), "")
	expect(t, d, "it may again", store.GateOpen)
	g.Account(t.Context(), "SES_DAILY_QUOTA_EXCEEDED")
	if now := expect(t, d, "its quota is spent", store.GateShut); *now.Reason != "SES_DAILY_QUOTA_EXCEEDED" {
		t.Errorf("gate = %+v", now)
	}
}

// A probe that passes knows better than an account that goes on claiming to refuse, until
// the account has changed its mind.
func TestAccount_AProbeIsBelieved(t *testing.T) {
	t.Parallel()
	d := storetest.New(t)
	g := newGate(d)
	g.Account(t.Context(), paused)
	now := expect(t, d, "it may not", store.GateShut)
	g.Answered(gate.Call{Email: uuid.New(), Attempt: uuid.New(), Pass: store.GatePass{Probe: true, Shuts: now.Shuts}})
	expect(t, d, "a probe passed", store.GateOpen)
	g.Account(t.Context(), paused)
	expect(t, d, "it says so still", store.GateOpen)
	g.Account(t.Context(), "")
	g.Account(t.Context(), paused)
	expect(t, d, "it says so anew", store.GateShut)
}

// An email's own answer weighs more than what the account says of itself.
func TestAccount_DoesNotOpenWhatAnEmailHasShut(t *testing.T) {
	t.Parallel()
	d := storetest.New(t)
	g := newGate(d)
	unspent := g.Failed(gate.Call{Email: uuid.New(), Attempt: uuid.New()}, &provider.Failure{
		Verdict: provider.Failed, Code: paused, Category: provider.PermanentError, AccountWide: true,
	})
	expect(t, d, "an email was refused", store.GateShut)
	if unspent {
		t.Error("the email that shut it keeps its try")
	}
	g.Account(t.Context(), "")
	expect(t, d, "the account says that it sends", store.GateShut)
}

// A probe that ends in an outage after another one has opened the gate pays nothing.
func TestFailed_ProbeAfterTheEnd(t *testing.T) {
	t.Parallel()
	d := storetest.New(t)
	g := newGate(d)
	g.Account(t.Context(), paused)
	pass := store.GatePass{Probe: true, Shuts: expect(t, d, "it may not", store.GateShut).Shuts}
	g.Answered(gate.Call{Email: uuid.New(), Attempt: uuid.New(), Pass: pass})
	late := &provider.Failure{Verdict: provider.Unknown, Code: "SES_TIMEOUT", Category: provider.TimeoutError, Outage: true}
	if !g.Failed(gate.Call{Email: uuid.New(), Attempt: uuid.New(), Pass: pass}, late) {
		t.Error("the late probe paid with a try")
	}
	expect(t, d, "a late probe", store.GateOpen)
}

// While an outage is only suspected, it takes no email's last try.
func TestFailed_LastTryInASuspectedOutage(t *testing.T) {
	t.Parallel()
	d := storetest.New(t)
	g := newGate(d)
	broken := &provider.Failure{Verdict: provider.Unknown, Code: "SES_INTERNAL_ERROR", Category: provider.TransientError, Outage: true}
	for i := range 8 {
		unspent := g.Failed(gate.Call{Email: uuid.New(), Attempt: uuid.New(), Last: i%2 == 0}, broken)
		if want := i >= 5 && i%2 == 0; unspent != want {
			t.Errorf("call %d: unspent %v, want %v", i+1, unspent, want)
		}
	}
	expect(t, d, "eight calls", store.GateOpen)
}

// One email alone keeps its last try while the provider does not answer about the account either.
// If it does, the email is the cause. Either way the gate stays open.
func TestFailed_LastTryOfOneEmailAlone(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		reach   func(context.Context) error
		unspent bool
	}{
		"the provider is away": {func(context.Context) error { return errors.New("connection refused") }, true},
		"it answers":           {func(context.Context) error { return nil }, false},
		"it cannot be asked":   {nil, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := storetest.New(t)
			asked := 0
			g := newGateWithReach(d, c.reach)
			if c.reach != nil {
				g = newGateWithReach(d, func(ctx context.Context) error {
					if asked++; ctx.Err() != nil {
						t.Error("asked without time to answer")
					}
					return c.reach(ctx)
				})
			}
			away := &provider.Failure{Verdict: provider.Retry, Code: "NETWORK_ERROR", Category: provider.TransientError, Outage: true}
			id := uuid.New()
			for try := range 7 {
				last := try >= 4
				if unspent := g.Failed(gate.Call{Email: id, Attempt: uuid.New(), Last: last}, away); unspent != (last && c.unspent) {
					t.Errorf("try %d: unspent %v", try+1, unspent)
				}
			}
			expect(t, d, "seven tries of one email", store.GateOpen)
			if asked > 1 {
				t.Errorf("the provider was asked %d times within a moment", asked)
			}
		})
	}
}
