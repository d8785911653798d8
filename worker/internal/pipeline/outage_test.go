package pipeline_test

import (
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"

	"email-gateway/shared/email"
	breakerstore "email-gateway/shared/store/breaker"
	"email-gateway/shared/store/outbox"
	"email-gateway/worker/internal/pipeline"
	"email-gateway/worker/internal/provider"
)

// probeOnce lets 5 s of schedule time pass and sends the next probe, if an email is due.
func (b *bench) probeOnce(t *testing.T) (id uuid.UUID, found bool) {
	t.Helper()
	b.exec(t, "UPDATE email_outbox SET next_at = next_at - interval '5 s'")
	b.exec(t, "UPDATE provider_gate SET probe_at = probe_at - interval '5 s'")
	probe, found, err := b.Store.PickProbe(t.Context(), email.Queues(), 5*time.Second, true)
	if err != nil {
		t.Fatal(err)
	}
	if found {
		_ = b.pipeline.Handle(t.Context(), b.task(t, probe.ID))
	}
	return probe.ID, found
}

func (b *bench) number(t *testing.T, query string) (n int) {
	t.Helper()
	if err := b.SQL.QueryRowContext(t.Context(), query).Scan(&n); err != nil {
		t.Fatal(err)
	}
	return n
}

// After twenty minutes of HTTP 500, which are 240 probes, no email has failed, with many emails or
// few, and each with an unknown outcome is flagged. The first probe after the outage closes the
// breaker.
func TestOutage_UnknownOutcomesFailNoEmail(t *testing.T) {
	t.Parallel()
	for name, emails := range map[string]int{"many": 40, "few": 3} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBench(t, nil)
			b.sender.fail(10_000, broken)
			var ids []uuid.UUID
			for range emails {
				ids = append(ids, b.Accept(t, b.company, nil))
			}
			for range 2 * email.MaxAttempts { // until 20 calls have failed: three emails need more than their tries for that
				for _, id := range ids {
					if !b.breakerRow(t).IsOpen {
						_ = b.handle(t, id)
					}
				}
			}
			if g := b.breakerRow(t); !g.IsOpen || *g.Reason != broken.Code {
				t.Fatalf("breaker = %+v after %d calls", g, len(b.sender.sent))
			}
			// The test does not wait for backoffs longer than a pause.
			b.exec(t, "UPDATE email_outbox SET next_at = now() WHERE status = 'RETRY_SCHEDULED'")
			probed := make(map[uuid.UUID]int)
			for range 240 {
				if id, found := b.probeOnce(t); found {
					probed[id]++
				}
			}
			if len(probed) != emails {
				t.Errorf("%d emails were probes, want all %d in turn", len(probed), emails)
			}
			for id, n := range probed {
				if n > 20 { // four short waits, and then one of 2 min -25 % after the other
					t.Errorf("%s was a probe %d times: it may have been delivered as often", id, n)
				}
			}
			if n := b.number(t, "SELECT count(*) FROM email_outbox WHERE status NOT IN ('PENDING', 'RETRY_SCHEDULED')"); n > 0 {
				t.Errorf("%d emails do not wait", n)
			}
			if n := b.number(t, "SELECT count(*) FROM email_outbox WHERE NOT (outcome_unknown AND possible_duplicate)"); n > 0 {
				t.Errorf("%d emails are not flagged", n)
			}
			b.sender.fail(0, broken)
			tries := 0
			for b.breakerRow(t).IsOpen && tries < 30 { // with few emails the longest wait has to pass
				b.probeOnce(t)
				tries++
			}
			if b.breakerRow(t).IsOpen || name == "many" && tries > 2 {
				t.Fatalf("the outage is over: breaker open %t after %d pauses between probes", b.breakerRow(t).IsOpen, tries)
			}
			for _, id := range ids {
				if b.find(t, id).Status != email.Sent {
					_ = b.handle(t, id)
				}
				if e := b.find(t, id); e.Status != email.Sent || e.Attempts-e.Throttles > email.MaxAttempts {
					t.Errorf("status %s, attempts %d, throttles %d", e.Status, e.Attempts, e.Throttles)
				}
			}
		})
	}
}

// With feedback, an email of unknown outcome waits for it first; the try does not count either.
func TestOutage_WaitsForFeedback(t *testing.T) {
	t.Parallel()
	b := newBench(t, func(p *pipeline.Params) { p.FeedbackWindow = time.Minute })
	b.openBreaker(t, denied)
	id := b.Accept(t, b.company, nil)
	b.probe(t, id)
	b.sender.fail(1, broken)
	if err := b.handle(t, id); err != nil {
		t.Fatal(err)
	}
	b.expect(t, id, email.OutcomeUnknown, 1, 1)
	if e := b.find(t, id); !e.OutcomeUnknown {
		t.Errorf("email = %+v, want it flagged", e)
	}
	var inOutage bool
	if err := b.SQL.QueryRowContext(t.Context(), `SELECT metadata -> 'inOutage' = 'true' FROM email_events WHERE type = 'OUTCOME_UNKNOWN'`).Scan(&inOutage); err != nil || !inOutage {
		t.Errorf("the event says of the outage %v, %v", inOutage, err)
	}
}

// With at_most_once an unknown outcome ends the email, whatever caused it.
func TestOutage_AtMostOnce(t *testing.T) {
	t.Parallel()
	b := newBench(t, nil)
	b.openBreaker(t, denied)
	id := b.Accept(t, b.company, func(e *outbox.NewEmail) { e.Delivery = email.AtMostOnce })
	b.probe(t, id)
	b.sender.fail(1, broken)
	_ = b.handle(t, id)
	b.expect(t, id, email.Failed, 1, 0)
}

// An email whose connection always breaks fails after its five tries and does not open the breaker.
func TestOutage_OneFailingEmailDoesNotOpen(t *testing.T) {
	t.Parallel()
	b := newBench(t, nil)
	id := b.Accept(t, b.company, nil)
	b.sender.fail(email.MaxAttempts, provider.Failure{Outcome: provider.Unknown, Code: "NETWORK_ERROR", Category: provider.TransientError, Outage: true})
	for range email.MaxAttempts {
		_ = b.handle(t, id)
	}
	b.expect(t, id, email.Failed, email.MaxAttempts, 0)
	if g := b.breakerRow(t); g.IsOpen || g.Openings != 0 {
		t.Errorf("circuit breaker = %+v", g)
	}
}

// An email that is not sent as a whole uses up no tries, because another try cannot double it, and does not open the breaker.
func TestOutage_IncompleteRequests(t *testing.T) {
	t.Parallel()
	b := newBench(t, nil)
	id := b.Accept(t, b.company, nil)
	const n = email.MaxAttempts + 2
	b.sender.fail(n, provider.Failure{Outcome: provider.Retry, Code: "NETWORK_ERROR", Category: provider.TransientError, Outage: true, Incomplete: true})
	for i := range n {
		_ = b.handle(t, id)
		b.expect(t, id, email.RetryScheduled, i+1, i+1)
	}
	if err := b.handle(t, id); err != nil {
		t.Fatal(err)
	}
	b.expect(t, id, email.Sent, n+1, n)
	if g := b.breakerRow(t); g.IsOpen || g.Openings != 0 {
		t.Errorf("circuit breaker = %+v", g)
	}
}

// The breaker opens during a call: its unknown outcome stays unknown and does not count as a try.
func TestOutage_UnknownInFlight(t *testing.T) {
	t.Parallel()
	b := newBench(t, nil)
	id := b.Accept(t, b.company, nil)
	b.exec(t, "UPDATE email_outbox SET attempts = $2 WHERE id = $1", id, email.MaxAttempts-1)
	b.sender.fail(1, broken)
	b.sender.during = func() {
		if _, err := b.Store.OpenBreaker(t.Context(), breakerstore.Opening{Reason: "X", By: "worker-2", Attempt: uuid.New()}); err != nil {
			t.Error(err)
		}
	}
	_ = b.handle(t, id)
	b.expect(t, id, email.RetryScheduled, email.MaxAttempts, 1)
	if e := b.find(t, id); !e.OutcomeUnknown || !e.PossibleDuplicate {
		t.Errorf("email = %+v, want it flagged", e)
	}
	if got, want := b.events(t, id), timeline(firstTry, email.EventOutcomeUnknown, email.EventRetryScheduled); !slices.Equal(got, want) {
		t.Errorf("events %v, want %v", got, want)
	}
}

// recorder is a pacer that records reported throttling.
type recorder struct {
	unpaced
	mu        sync.Mutex
	throttled []time.Time
}

func (r *recorder) Return(int) {}

func (r *recorder) Throttled(start time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.throttled = append(r.throttled, start)
}

// A throttling answer slows the workers down; an exhausted daily quota does not concern the rate.
func TestHandle_ThrottlingReportedToPacer(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		failure provider.Failure
		want    int
	}{
		"throttled":   {provider.Failure{Outcome: provider.Throttled, Code: "SES_THROTTLING", Category: provider.QuotaError}, 1},
		"daily quota": {quota, 0},
		"unavailable": {away, 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			pacer := &recorder{}
			b := newBench(t, func(p *pipeline.Params) { p.Pacer = pacer })
			b.sender.fail(1, c.failure)
			before := time.Now()
			_ = b.handle(t, b.Accept(t, b.company, nil))
			if len(pacer.throttled) != c.want || c.want > 0 && pacer.throttled[0].Before(before) {
				t.Errorf("throttled %v, want %d", pacer.throttled, c.want)
			}
		})
	}
}
