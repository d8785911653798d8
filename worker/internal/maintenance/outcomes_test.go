package maintenance_test

import (
	"bytes"
	"encoding/json"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"email-gateway/shared/email"
	"email-gateway/shared/email/emailtest"
	"email-gateway/shared/steps"
	"email-gateway/shared/store/outbox"
	"email-gateway/shared/store/storetest"
	"email-gateway/shared/waittest"
	"email-gateway/worker/internal/maintenance"
	"email-gateway/worker/internal/provider"
)

func TestRescuer_WaitsForFeedback(t *testing.T) {
	t.Parallel()
	d := storetest.New(t)
	company := d.Company(t)
	again := claim(t, d, company, "- interval '6 s'", nil)
	never := claim(t, d, company, "- interval '6 s'", func(e *outbox.NewEmail) { e.Delivery = email.AtMostOnce })
	rescue(t, d, newQueue(t), time.Hour)
	for _, id := range []uuid.UUID{again, never} {
		waittest.Until(t, "it waits", func() bool { return status(t, d, id) == email.OutcomeUnknown })
		set(t, d, id, `next_at = now()`)
	}
	waittest.Until(t, "sent again", func() bool { return status(t, d, again) == email.RetryScheduled })
	waittest.Until(t, "given up", func() bool { return status(t, d, never) == email.Failed })
	timeline, err := d.Store.Timeline(t.Context(), again)
	if err != nil || len(timeline) != 5 || timeline[3].Type != email.EventOutcomeUnknown || timeline[4].Type != email.EventRetryScheduled {
		t.Errorf("%+v, %v", timeline, err)
	}
}

func TestRescuer_UsesTheWorkersFeedbackWindow(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		own  time.Duration
		told map[string]any
		want email.Status
	}{
		"the dispatcher has none": {0, map[string]any{maintenance.WindowFact: 900_000}, email.OutcomeUnknown},
		"the workers have none":   {time.Hour, map[string]any{maintenance.WindowFact: 0}, email.RetryScheduled},
		"the workers report none": {time.Hour, map[string]any{"concurrency": 10}, email.OutcomeUnknown},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := storetest.New(t)
			for instance, facts := range map[string]map[string]any{"a": tt.told, "b": {maintenance.WindowFact: "odd"}} {
				if err := d.Store.ReportStatus(t.Context(), "worker", instance, time.Now(), facts); err != nil {
					t.Fatal(err)
				}
			}
			id := claim(t, d, d.Company(t), "- interval '6 s'", nil)
			rescue(t, d, newQueue(t), tt.own)
			waittest.Until(t, string(tt.want), func() bool { return status(t, d, id) == tt.want })
		})
	}
}

// What cut the workers off from SES cuts them off from the queue of its events too.
func TestOutcomeResolver_WaitsUntilTheQueueIsDrained(t *testing.T) {
	t.Parallel()
	d := storetest.New(t)
	report := func(instance string, drained time.Duration) {
		facts := map[string]any{maintenance.DrainedFact: drained.Milliseconds(), maintenance.WindowFact: time.Minute.Milliseconds()}
		if err := d.Store.ReportStatus(t.Context(), "worker", instance, time.Now(), facts); err != nil {
			t.Fatal(err)
		}
	}
	company := d.Company(t)
	recent, earlier, old := claim(t, d, company, "- interval '6 s'", nil), claim(t, d, company, "- interval '6 s'", nil), claim(t, d, company, "- interval '6 s'", nil)
	report("never drained it", time.Since(time.Time{}))
	report("drained it", 30*time.Minute)
	rescue(t, d, newQueue(t), time.Minute)
	for _, id := range []uuid.UUID{recent, earlier, old} {
		waittest.Until(t, "it waits", func() bool { return status(t, d, id) == email.OutcomeUnknown })
	}
	set(t, d, recent, `next_at = now() - interval '25 min'`)
	set(t, d, earlier, `next_at = now() - interval '35 min'`)
	waittest.Until(t, "resolved, because the queue was drained since", func() bool { return status(t, d, earlier) == email.RetryScheduled })
	report("drained it", 10*time.Hour)
	for _, stopped := range []string{"never drained it", "drained it"} {
		if err := d.Store.WithdrawStatus(t.Context(), "worker", stopped); err != nil {
			t.Fatal(err)
		}
	}
	set(t, d, old, `next_at = now() - interval '61 min'`)
	waittest.Until(t, "resolved after the maximum", func() bool { return status(t, d, old) == email.RetryScheduled })
	if got := status(t, d, recent); got != email.OutcomeUnknown {
		t.Errorf("%s, although the queue was not drained since", got)
	}
	report("drained it", 0)
	waittest.Until(t, "resolved", func() bool { return status(t, d, recent) == email.RetryScheduled })
}

// The dispatcher's events of an unknown outcome have the same cause fields and metrics as the
// worker's.
func TestOutcomes_Cause(t *testing.T) {
	t.Parallel()
	timeout := map[string]any{"errorCode": "SES_TIMEOUT", "errorCategory": provider.TimeoutError, "errorMessage": "no answer", "originalCode": ""}
	cut := map[string]any{"errorCode": "SES_INTERNAL", "errorCategory": provider.TransientError, "originalCode": "InternalFailure"}
	for name, tt := range map[string]struct {
		delivery email.Delivery
		unknown  map[string]any // metadata of the worker's event; nil: the worker died
		want     email.EventType
		category provider.Category
		code     string
		metrics  string
	}{
		"a timeout, retried": {
			email.AtLeastOnce, timeout, email.EventRetryScheduled, provider.TimeoutError, "SES_TIMEOUT",
			`pipeline_retry_total{category="TIMEOUT_ERROR"} 1`,
		},
		"a provider's code, not retried": {
			email.AtMostOnce, cut, email.EventFailed, provider.TransientError, "InternalFailure",
			`pipeline_final_state_total{state="FAILED"} 1`,
		},
		"abandoned, retried": {
			email.AtLeastOnce, nil, email.EventRetryScheduled, provider.TransientError, email.CodeAttemptAbandoned,
			`pipeline_retry_total{category="TRANSIENT_ERROR"} 1`,
		},
		"abandoned, not retried": {
			email.AtMostOnce, nil, email.EventFailed, provider.TransientError, email.CodeAttemptAbandoned,
			`pipeline_final_state_total{state="FAILED"} 1`,
		},
		"of an older release": {
			email.AtLeastOnce,
			map[string]any{"errorCode": email.CodeOutcomeUnknown},
			email.EventRetryScheduled,
			provider.TransientError, email.CodeOutcomeUnknown, `pipeline_retry_total{category="TRANSIENT_ERROR"} 1`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := storetest.New(t)
			id := claim(t, d, d.Company(t), "- interval '6 s'", func(e *outbox.NewEmail) { e.Delivery = tt.delivery })
			if tt.unknown != nil {
				var token uuid.UUID
				if err := d.SQL.QueryRowContext(t.Context(), `SELECT claim_token FROM email_outbox WHERE id = $1`, id).Scan(&token); err != nil {
					t.Fatal(err)
				}
				_, err := d.Store.Advance(t.Context(), outbox.Transition{
					ID: id, Guard: outbox.GuardAttempt, Token: token, Status: email.OutcomeUnknown, OutcomeUnknown: true, Delay: time.Hour,
					Events: []email.Event{{Type: email.EventOutcomeUnknown, At: time.Now(), Metadata: tt.unknown}},
				})
				if err != nil {
					t.Fatal(err)
				}
			}
			registry := prometheus.NewRegistry()
			outcomes := maintenance.Outcomes{
				Advancer: steps.New(registry).Watch(d.Store.NewAdvancer(), slog.New(slog.DiscardHandler)), MaxAttempts: email.MaxAttempts, Backoff: emailtest.Backoff(),
				Window: time.Hour, Processes: d.Store, Wake: d.Store.WakeNamed,
			}
			run(t, maintenance.NewRescuer(maintenance.RescuerParams{
				Log: slog.New(slog.DiscardHandler), Store: d.Store, Outcomes: outcomes, Queue: newQueue(t), Registry: registry,
				Actions: maintenance.NewActions(registry), After: time.Minute,
			}))
			run(t, maintenance.NewOutcomeResolver(maintenance.ResolverParams{
				Log: slog.New(slog.DiscardHandler), Store: d.Store, Outcomes: outcomes, Registry: registry,
			}))
			waittest.Until(t, "its outcome is unknown", func() bool { return status(t, d, id) == email.OutcomeUnknown })
			set(t, d, id, `next_at = now()`)
			waittest.Until(t, "its delivery decided", func() bool { return status(t, d, id) != email.OutcomeUnknown })
			timeline, err := d.Store.Timeline(t.Context(), id)
			if err != nil {
				t.Fatal(err)
			}
			for _, event := range timeline[3:] {
				var got struct {
					ErrorCode, OriginalCode string
					ErrorCategory           provider.Category
				}
				if event.Type == email.EventOutcomeUnknown && tt.unknown != nil {
					continue // the worker's
				}
				if err := json.Unmarshal(event.Metadata, &got); err != nil {
					t.Fatal(err)
				}
				if got.ErrorCode != email.CodeOutcomeUnknown || got.ErrorCategory != tt.category || got.OriginalCode != tt.code {
					t.Errorf("%s %s, want %s of %s", event.Type, event.Metadata, tt.code, tt.category)
				}
			}
			if last := timeline[len(timeline)-1].Type; last != tt.want {
				t.Errorf("the last event is %s, want %s", last, tt.want)
			}
			waittest.Until(t, tt.metrics, func() bool { return strings.Contains(exposition(t, registry), "\n"+tt.metrics+"\n") })
		})
	}
}

// exposition is the response of /metrics.
func exposition(t *testing.T, registry *prometheus.Registry) string {
	t.Helper()
	recorder := httptest.NewRecorder()
	promhttp.HandlerFor(registry, promhttp.HandlerOpts{}).ServeHTTP(recorder, httptest.NewRequest(http.MethodGet, "/metrics", http.NoBody))
	return recorder.Body.String()
}

func TestOutcomeResolver_Pages(t *testing.T) {
	t.Parallel()
	d := storetest.New(t)
	company := d.Company(t)
	var ids []uuid.UUID
	for range 5 {
		id := claim(t, d, company, "+ interval '1 min'", nil)
		set(t, d, id, `status = 'OUTCOME_UNKNOWN', lease_until = NULL, next_at = now() + interval '1 h', expires_at = date_trunc('day', now()) + interval '2 days'`)
		ids = append(ids, id)
	}
	slices.SortFunc(ids, func(a, b uuid.UUID) int { return bytes.Compare(a[:], b[:]) })
	set(t, d, ids[1], `next_at = now()`)
	set(t, d, ids[4], `next_at = now()`)
	run(t, maintenance.NewOutcomeResolver(maintenance.ResolverParams{
		Log: slog.New(slog.DiscardHandler), Store: d.Store, Registry: prometheus.NewRegistry(), Page: 2,
		Outcomes: maintenance.Outcomes{Advancer: d.Store.NewAdvancer(), MaxAttempts: email.MaxAttempts, Backoff: emailtest.Backoff(), Processes: d.Store, Wake: d.Store.WakeNamed},
	}))
	for _, due := range []uuid.UUID{ids[1], ids[4]} {
		waittest.Until(t, "sent again", func() bool { return status(t, d, due) == email.RetryScheduled })
	}
	for _, waits := range []uuid.UUID{ids[0], ids[2], ids[3]} {
		if got := status(t, d, waits); got != email.OutcomeUnknown {
			t.Errorf("one that is not due: %s", got)
		}
	}
}

// The feedback window ends while sending is parked: the last try does not count. After a call
// during an outage the next try comes in time to notice its end; a throttled email waits according
// to its tries.
func TestOutcomeResolver_ParkedSendingFailsNoEmail(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		parked   bool
		outage   bool // the call was made during an outage
		delivery email.Delivery
		want     email.Status
		counters string
		attempts int           // tries that count
		delay    time.Duration // until the next one, ± 25 %
	}{
		"parked":          {true, false, email.AtLeastOnce, email.RetryScheduled, "attempts = 5", email.MaxAttempts - 1, 2 * time.Minute},
		"parked for long": {true, true, email.AtLeastOnce, email.RetryScheduled, "attempts = 45, throttles = 40", email.MaxAttempts - 1, time.Hour},
		"open again":      {false, true, email.AtLeastOnce, email.RetryScheduled, "attempts = 45, throttles = 41", email.MaxAttempts - 1, time.Hour},
		"throttled":       {false, false, email.AtLeastOnce, email.RetryScheduled, "attempts = 45, throttles = 41", email.MaxAttempts - 1, 10 * time.Minute},
		"open":            {false, false, email.AtLeastOnce, email.Failed, "attempts = 5", email.MaxAttempts, 0},
		"at most once":    {true, true, email.AtMostOnce, email.Failed, "attempts = 5", email.MaxAttempts, 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := storetest.New(t)
			id := claim(t, d, d.Company(t), "+ interval '1 min'", func(e *outbox.NewEmail) { e.Delivery = c.delivery })
			var token uuid.UUID
			if err := d.SQL.QueryRowContext(t.Context(), `SELECT claim_token FROM email_outbox WHERE id = $1`, id).Scan(&token); err != nil {
				t.Fatal(err)
			}
			_, err := d.Store.Advance(t.Context(), outbox.Transition{
				ID: id, Guard: outbox.GuardAttempt, Token: token, Status: email.OutcomeUnknown, OutcomeUnknown: true, Delay: time.Hour,
				Events: []email.Event{{Type: email.EventOutcomeUnknown, At: time.Now(), Metadata: map[string]any{"errorCode": "SES_TIMEOUT", "inOutage": c.outage}}},
			})
			if err != nil {
				t.Fatal(err)
			}
			set(t, d, id, `next_at = now(), `+c.counters)
			if c.parked {
				if _, err := d.Store.OpenBreakerByAccount(t.Context(), "SES_TIMEOUT", "worker-1"); err != nil {
					t.Fatal(err)
				}
			}
			run(t, maintenance.NewOutcomeResolver(maintenance.ResolverParams{
				Log: slog.New(slog.DiscardHandler), Store: d.Store, Registry: prometheus.NewRegistry(),
				Outcomes: maintenance.Outcomes{Advancer: d.Store.NewAdvancer(), MaxAttempts: email.MaxAttempts, Backoff: emailtest.Backoff(), Processes: d.Store, Breaker: d.Store, Wake: d.Store.WakeNamed},
			}))
			waittest.Until(t, string(c.want), func() bool { return status(t, d, id) == c.want })
			var (
				attempts int
				wait     float64 // seconds
			)
			if err := d.SQL.QueryRowContext(t.Context(), "SELECT attempts - throttles, extract(epoch FROM next_at - now()) FROM email_outbox WHERE id = $1", id).Scan(&attempts, &wait); err != nil || attempts != c.attempts {
				t.Errorf("%d attempts, %v, want %d", attempts, err, c.attempts)
			}
			if got := time.Duration(wait * float64(time.Second)); c.want == email.RetryScheduled && (got < c.delay*7/10 || got > c.delay*13/10) {
				t.Errorf("its next try is in %s, want %s", got, c.delay)
			}
		})
	}
}
