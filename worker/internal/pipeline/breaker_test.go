package pipeline_test

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/uuid"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"email-gateway/shared/email"
	"email-gateway/shared/logtest"
	breakerstore "email-gateway/shared/store/breaker"
	"email-gateway/shared/store/outbox"
	"email-gateway/worker/internal/breaker"
	"email-gateway/worker/internal/pipeline"
	"email-gateway/worker/internal/provider"
	"email-gateway/worker/internal/queue"
)

// Failures that concern the account, not the email that got them.
var (
	paused    = provider.Failure{Outcome: provider.Failed, Code: "SES_ACCOUNT_SENDING_PAUSED", Category: provider.PermanentError, AccountWide: true}
	quota     = provider.Failure{Outcome: provider.Throttled, Code: "SES_DAILY_QUOTA_EXCEEDED", Category: provider.QuotaError, AccountWide: true}
	denied    = provider.Failure{Outcome: provider.Park, Code: "SES_ACCESS_DENIED", Category: provider.ConfigurationError}
	away      = provider.Failure{Outcome: provider.Retry, Code: "NETWORK_ERROR", Category: provider.TransientError, Outage: true}
	broken    = provider.Failure{Outcome: provider.Unknown, Code: "SES_INTERNAL_ERROR", Category: provider.TransientError, Outage: true}
	garbled   = provider.Failure{Outcome: provider.Unreadable, Code: "SES_RESPONSE_UNREADABLE", Category: provider.TransientError}
	rejected  = provider.Failure{Outcome: provider.Failed, Code: "SES_MESSAGE_REJECTED", Category: provider.PermanentError}
	unwritten = provider.Failure{Outcome: provider.Failed, Code: "SES_INVALID_REQUEST", Category: provider.ValidationError}
)

func (b *bench) breakerRow(t *testing.T) breakerstore.Breaker {
	t.Helper()
	g, err := b.Store.Breaker(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return g
}

// openBreaker opens the circuit breaker with the failures of an email of its own.
func (b *bench) openBreaker(t *testing.T, f provider.Failure) {
	t.Helper()
	b.sender.fail(1, f)
	_ = b.handle(t, b.Accept(t, b.company, nil))
	if !b.breakerRow(t).IsOpen {
		t.Fatalf("the breaker is still closed after %s", f.Code)
	}
	b.sender.sent = nil
}

// probe makes the email the current probe.
func (b *bench) probe(t *testing.T, id uuid.UUID) {
	t.Helper()
	b.exec(t, "UPDATE provider_gate SET probe_id = $1, probe_at = now()", id)
}

// expect checks the status and counters of an email.
func (b *bench) expect(t *testing.T, id uuid.UUID, status email.Status, attempts, throttles int) {
	t.Helper()
	if e := b.find(t, id); e.Status != status || e.Attempts != attempts || e.Throttles != throttles {
		t.Errorf("status %s, attempts %d, throttles %d; want %s, %d, %d", e.Status, e.Attempts, e.Throttles, status, attempts, throttles)
	}
}

// The email whose failure opens the breaker is recorded by its outcome. From then on emails are
// dropped before the call.
func TestBreaker_OneEmailOpensItForAll(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		failure             provider.Failure
		status              email.Status
		attempts, throttles int
	}{
		"account paused":    {paused, email.Failed, 1, 0},
		"daily quota":       {quota, email.RetryScheduled, 1, 1},
		"wrong credentials": {denied, email.Pending, 0, 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBench(t, nil)
			first, second := b.Accept(t, b.company, nil), b.Accept(t, b.company, nil)
			b.sender.fail(1, c.failure)
			_ = b.handle(t, first)
			b.expect(t, first, c.status, c.attempts, c.throttles)
			g := b.breakerRow(t)
			if !g.IsOpen || *g.Reason != c.failure.Code || *g.ChangedBy != "worker-1" {
				t.Fatalf("circuit breaker = %+v", g)
			}
			b.exec(t, "UPDATE email_outbox SET status = 'ENQUEUED' WHERE id = $1", second)
			if err := b.pipeline.Handle(t.Context(), b.task(t, second)); err != nil {
				t.Fatal(err)
			}
			b.expect(t, second, email.Pending, 0, 0)
			if got := b.events(t, second); len(got) > 0 || len(b.sender.sent) != 1 {
				t.Errorf("%d calls, and events %v of an email without an attempt", len(b.sender.sent), got)
			}
		})
	}
}

// Calls in flight when the breaker opened, and its probe, are released: the failure is already
// known.
func TestBreaker_InFlightAndProbeAreReleased(t *testing.T) {
	t.Parallel()
	for name, f := range map[string]provider.Failure{"paused": paused, "quota": quota, "denied": denied, "away": away} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBench(t, nil)
			inFlight := b.Accept(t, b.company, nil)
			other := uuid.New()
			b.sender.fail(1, f)
			b.sender.during = func() {
				if done, err := b.Store.OpenBreaker(t.Context(), breakerstore.Opening{Reason: "FIRST", By: "worker-2", Attempt: other}); err != nil || !done.Opened {
					t.Errorf("opened: %v, %v", done, err)
				}
			}
			if err := b.handle(t, inFlight); err != nil {
				t.Errorf("in flight: %v", err)
			}
			b.sender.during = nil
			b.expect(t, inFlight, email.Pending, 0, 0)

			probe := b.Accept(t, b.company, nil)
			b.probe(t, probe)
			b.sender.fail(1, f)
			if err := b.handle(t, probe); err != nil {
				t.Errorf("probe: %v", err)
			}
			b.expect(t, probe, email.Pending, 0, 0)
			if got, want := b.events(t, probe), timeline(firstTry, email.EventReleased); !slices.Equal(got, want) {
				t.Errorf("events %v, want %v", got, want)
			}
			if g := b.breakerRow(t); !g.IsOpen || g.Openings != 1 || *g.Reason != "FIRST" {
				t.Errorf("circuit breaker = %+v", g)
			}
		})
	}
}

// The probe's outcome decides whether the breaker closes.
func TestBreaker_ProbeOutcomes(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		answer *provider.Failure
		status email.Status
		open   bool // afterwards
	}{
		"sent":            {nil, email.Sent, false},
		"rejected":        {&rejected, email.Failed, false},
		"never left":      {&unwritten, email.Failed, true},
		"unreadable":      {&garbled, email.Failed, true},
		"throttled":       {&provider.Failure{Outcome: provider.Throttled, Code: "SES_THROTTLING"}, email.RetryScheduled, true},
		"connection lost": {&broken, email.RetryScheduled, true},
		"still denied":    {&denied, email.Pending, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBench(t, nil)
			b.openBreaker(t, denied)
			probe, other := b.Accept(t, b.company, nil), b.Accept(t, b.company, nil)
			b.probe(t, probe)
			if c.answer != nil {
				b.sender.fail(1, *c.answer)
			}
			_ = b.handle(t, other) // not a probe
			_ = b.handle(t, probe)
			if got := b.find(t, probe).Status; got != c.status || len(b.sender.sent) != 1 {
				t.Errorf("status %s after %d calls, want %s after one", got, len(b.sender.sent), c.status)
			}
			if open := b.breakerRow(t).IsOpen; open != c.open {
				t.Errorf("circuit breaker open: %t, want %t", open, c.open)
			}
		})
	}
}

// A success of a call that began before the breaker opened does not close it.
func TestBreaker_OldSuccessDoesNotCloseIt(t *testing.T) {
	t.Parallel()
	b := newBench(t, nil)
	id := b.Accept(t, b.company, nil)
	b.sender.during = func() {
		_, err := b.Store.OpenBreaker(t.Context(), breakerstore.Opening{Reason: "X", By: "worker-2", Attempt: uuid.New()})
		if err != nil {
			t.Error(err)
		}
	}
	if err := b.handle(t, id); err != nil {
		t.Fatal(err)
	}
	b.expect(t, id, email.Sent, 1, 0)
	if !b.breakerRow(t).IsOpen {
		t.Error("the circuit breaker is closed")
	}
}

// In an outage the email whose failure opens the breaker, and all later ones, keep their tries.
func TestBreaker_OutageKeepsTries(t *testing.T) {
	t.Parallel()
	b := newBench(t, nil)
	b.sender.fail(1000, away)
	var ids []uuid.UUID
	for range 30 {
		ids = append(ids, b.Accept(t, b.company, nil))
	}
	for _, id := range ids {
		_ = b.handle(t, id)
	}
	calls := len(b.sender.sent) // fewer than 20 if they took 5 s
	if calls < 2 || calls > 20 {
		t.Errorf("%d calls, want 20", calls)
	}
	for i, id := range ids {
		if i < calls-1 {
			b.expect(t, id, email.RetryScheduled, 1, 0)
		} else {
			b.expect(t, id, email.Pending, 0, 0)
		}
	}
}

// An email whose connection always breaks uses its five tries although the account's API fails for
// long: the provider accepts others meanwhile.
func TestBreaker_OneFailingEmailWhileOthersPass(t *testing.T) {
	t.Parallel()
	b := newBench(t, nil)
	b.pipeline.Breaker = breaker.New(breaker.Params{
		Log: slog.New(slog.DiscardHandler), Store: b.Store, Instance: "worker-1", Registry: prometheus.NewRegistry(),
		Reach: func(context.Context) error { return errors.New("502") },
	})
	cut := b.Accept(t, b.company, nil)
	for range 8 {
		other := b.Accept(t, b.company, nil)
		if err := b.handle(t, other); err != nil {
			t.Fatal(err)
		}
		b.exec(t, "UPDATE email_outbox SET next_at = now() WHERE id = $1", cut)
		b.sender.fail(1, away)
		_ = b.handle(t, cut)
		b.sender.fail(0, away)
	}
	b.expect(t, cut, email.Failed, 5, 0)
}

// A proxy that answers 200 to everything must not mark emails as sent.
func TestBreaker_ThreeUnreadableResponses(t *testing.T) {
	t.Parallel()
	b := newBench(t, nil)
	b.sender.fail(1000, garbled)
	for i := range 5 {
		id := b.Accept(t, b.company, nil)
		_ = b.handle(t, id)
		want := email.Failed
		if i >= 3 {
			want = email.Pending
		}
		if got := b.find(t, id); got.Status != want || got.OutcomeUnknown != (i < 3) {
			t.Errorf("email %d is %s, outcomeUnknown %v", i+1, got.Status, got.OutcomeUnknown)
		}
	}
	if g := b.breakerRow(t); !g.IsOpen || *g.Reason != garbled.Code {
		t.Errorf("circuit breaker = %+v", g)
	}
}

// While another server answers in the provider's place, probes do not fail emails. They are made again when the provider answers.
func TestBreaker_ProbesWhileAnotherServerAnswers(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		reach  error
		status email.Status
		calls  int
	}{
		"another server":                 {&garbled, email.Pending, 0},
		"the provider":                   {nil, email.Sent, 1},
		"only the account's API is down": {errors.New("503"), email.Sent, 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBench(t, nil)
			b.pipeline.Breaker = breaker.New(breaker.Params{
				Log: slog.New(slog.DiscardHandler), Store: b.Store, Instance: "worker-1", Registry: prometheus.NewRegistry(),
				Reach: func(context.Context) error { return c.reach },
			})
			b.sender.fail(3, garbled)
			for range 3 {
				_ = b.handle(t, b.Accept(t, b.company, nil))
			}
			if g := b.breakerRow(t); !g.IsOpen {
				t.Fatalf("circuit breaker = %+v", g)
			}
			b.sender.sent = nil
			for range 2 {
				probe := b.Accept(t, b.company, nil)
				b.probe(t, probe)
				if err := b.handle(t, probe); err != nil {
					t.Fatal(err)
				}
				if e := b.find(t, probe); e.Status != c.status || len(b.sender.sent) != c.calls {
					t.Errorf("the probe is %s after %d calls, want %s after %d", e.Status, len(b.sender.sent), c.status, c.calls)
				}
				if c.calls > 0 {
					return
				}
				if g := b.breakerRow(t); !g.IsOpen || g.ProbeAt == nil {
					t.Errorf("circuit breaker = %+v, want the next probe after the pause", g)
				}
			}
		})
	}
}

// A probe that ends before the call makes room for the next one.
func TestBreaker_SkippedProbe(t *testing.T) {
	t.Parallel()
	b := newBench(t, nil)
	b.openBreaker(t, denied)
	id := b.Accept(t, b.company, func(e *outbox.NewEmail) { e.HTML = "" })
	b.probe(t, id)
	var dead *queue.Dead
	if err := b.handle(t, id); !errors.As(err, &dead) {
		t.Fatalf("handle = %v", err)
	}
	if g := b.breakerRow(t); g.ProbeAt != nil || !g.IsOpen {
		t.Errorf("circuit breaker = %+v, want room for another probe", g)
	}
}

// With many workers and emails, one line is logged when the breaker opens and one when it closes.
func TestBreaker_OneLogLine(t *testing.T) {
	t.Parallel()
	var lines logtest.Buffer
	registry := prometheus.NewRegistry()
	log := slog.New(slog.NewTextHandler(&lines, nil))
	b := newBench(t, func(p *pipeline.Params) { p.Log = log })
	b.pipeline.Breaker = breaker.New(breaker.Params{Log: log, Store: b.Store, Instance: "worker-1", Registry: registry})
	b.sender.fail(1000, denied)
	var ids []uuid.UUID
	for range 24 {
		ids = append(ids, b.Accept(t, b.company, nil))
	}
	var group sync.WaitGroup
	for _, id := range ids {
		task := b.task(t, id)
		group.Go(func() { _ = b.pipeline.Handle(t.Context(), task) })
	}
	group.Wait()
	b.sender.fail(0, denied)
	b.probe(t, ids[7])
	if err := b.handle(t, ids[7]); err != nil {
		t.Fatal(err)
	}
	text := lines.String()
	if strings.Count(text, "circuit breaker opened") != 1 || strings.Count(text, "circuit breaker closed") != 1 || strings.Count(text, "\n") != 3 {
		t.Errorf("logged:\n%s", text) // the third line is about the sent email
	}
	counted := "# HELP provider_circuit_breaker_opens_total How often this process opened the circuit breaker, by reason code.\n" +
		"# TYPE provider_circuit_breaker_opens_total counter\nprovider_circuit_breaker_opens_total{reason=\"SES_ACCESS_DENIED\"} 1\n"
	if err := testutil.GatherAndCompare(registry, strings.NewReader(counted), "provider_circuit_breaker_opens_total"); err != nil {
		t.Error(err)
	}
}

// A refusal that may concern only its sender opens the circuit breaker once. When the account has then accepted the email of
// another sender, the next refusal is that sender's own: its tries count, and the breaker stays closed for the others.
func TestBreaker_OneSenderIsRefused(t *testing.T) {
	t.Parallel()
	b := newBench(t, nil)
	unclear := denied
	unclear.Ambiguous = true
	from := func(domain string) uuid.UUID {
		id := b.Accept(t, b.company, nil)
		b.exec(t, "UPDATE email_outbox SET sender = $2 WHERE id = $1", id, "Shop <shop@"+domain+">")
		return id
	}
	state := func(when string, open bool, openings int64) {
		t.Helper()
		if got := b.breakerRow(t); got.IsOpen != open || got.Openings != openings {
			t.Errorf("%s: open %t, opened %d times; want %t, %d", when, got.IsOpen, got.Openings, open, openings)
		}
	}
	refuse := func(id uuid.UUID) error {
		b.sender.fail(1, unclear)
		return b.handle(t, id)
	}

	first := from("refused.example")
	if err := refuse(first); err != nil {
		t.Fatal(err)
	}
	b.expect(t, first, email.Pending, 0, 0)
	state("the first refusal", true, 1)

	probe := from("works.example")
	b.probe(t, probe)
	if err := b.handle(t, probe); err != nil {
		t.Fatal(err)
	}
	state("another sender's probe", false, 1)

	b.exec(t, "UPDATE email_outbox SET next_at = now() WHERE id = $1", first)
	_ = refuse(first)
	b.expect(t, first, email.RetryScheduled, 1, 0)
	second := from("refused.example")
	_ = refuse(second)
	b.expect(t, second, email.RetryScheduled, 1, 0)
	state("the same sender again", false, 1)

	// The sender is allowed now. If it is refused later, it may be the account again.
	if err := b.handle(t, from("refused.example")); err != nil {
		t.Fatal(err)
	}
	if err := refuse(from("refused.example")); err != nil {
		t.Fatal(err)
	}
	state("refused after it was accepted", true, 2)
}
