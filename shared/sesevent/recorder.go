package sesevent

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"email-gateway/shared/email"
	"email-gateway/shared/steps"
	"email-gateway/shared/store/feedback"
	"email-gateway/shared/telemetry"
)

// Result is the result of a received event.
type Result string

// Results of an event.
const (
	Applied   Result = "applied"
	Repeated  Result = "repeated"  // received before
	Unmatched Result = "unmatched" // not about an email of this installation
	Ignored   Result = "ignored"   // a test message of SES
	Refused   Result = "refused"   // over SNS: no message of a topic of ours, one that could not be verified, or no SES event
	Poison    Result = "poison"    // of a queue: malformed, or refused by the database; it is left in the queue
	Postponed Result = "postponed" // of a queue: a row is locked or Postgres is away; it is left in the queue
)

// Store records the provider's events. *store.Store implements it.
type Store interface {
	RecordFeedback(ctx context.Context, f feedback.Feedback) (feedback.Result, error)
}

// Recorder records events and counts them.
type Recorder struct {
	log        *slog.Logger
	store      Store
	steps      *steps.Counter
	received   *prometheus.CounterVec
	duplicates prometheus.Counter
	onAccount  prometheus.Counter
	age        prometheus.Histogram
}

// NewRecorder returns a Recorder and registers its metrics. counter counts the emails that an event makes SENT.
func NewRecorder(log *slog.Logger, s Store, counter *steps.Counter, registry prometheus.Registerer) (*Recorder, error) {
	r := &Recorder{
		log: log, store: s, steps: counter,
		received: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "ses_events_total", Help: "SES events received, by kind and result.",
		}, []string{"kind", "result"}),
		duplicates: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "duplicates_confirmed_total", Help: "Emails that SES confirmed to have accepted more than once.",
		}),
		onAccount: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "ses_account_suppressed_total",
			Help: "SES events about emails that SES did not send, because the address is on the suppression list of its account.",
		}),
		age: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "ses_event_age_seconds", Help: "Time from a Send or Delivery event of SES to its recording.",
			Buckets: []float64{1, 5, 15, 30, 60, 120, 300, 900, 3600, 4 * 3600},
		}),
	}
	// The alerts cannot see the first event of a series that begins with it.
	for _, kind := range append(Kinds(), "") {
		r.add(kind, Applied, 0)
		r.add(kind, Poison, 0)
		r.add(kind, Unmatched, 0)
	}
	r.add("", Refused, 0)
	for _, metric := range []prometheus.Collector{r.received, r.duplicates, r.onAccount, r.age} {
		if err := registry.Register(metric); err != nil {
			return nil, fmt.Errorf("register metrics: %w", err)
		}
	}
	return r, nil
}

// Count counts an event that was not recorded. kind may be empty.
func (r *Recorder) Count(kind string, result Result) { r.add(kind, result, 1) }

func (r *Recorder) add(kind string, result Result, n float64) {
	if !slices.Contains(Kinds(), kind) {
		kind = "other" // the values of a label must be bounded
	}
	r.received.WithLabelValues(kind, string(result)).Add(n)
}

// Record records an event that was received at begun, and counts it. A failed event is not counted.
func (r *Recorder) Record(ctx context.Context, f feedback.Feedback, start time.Time) (Result, error) {
	done, err := r.store.RecordFeedback(ctx, f)
	if err != nil {
		return "", err
	}
	result := Applied
	switch {
	case done.Repeated:
		result = Repeated
	case done.Unmatched:
		result = Unmatched
	}
	r.Count(f.Kind, result)
	if result == Applied {
		r.observeAge(f)
		r.logEffects(ctx, f, done, start)
	}
	return result, nil
}

// observeAge observes the age of events whose time is that of SES. The time of a bounce or complaint may be the
// receiving server's.
func (r *Recorder) observeAge(f feedback.Feedback) {
	if (f.Kind == Send || f.Kind == Delivery) && !f.OccurredAt.IsZero() {
		r.age.Observe(max(time.Since(f.OccurredAt).Seconds(), 0))
	}
}

func (r *Recorder) logEffects(ctx context.Context, f feedback.Feedback, done feedback.Result, start time.Time) {
	log := telemetry.EmailLogger(r.log, telemetry.Email{
		OutboxID: f.OutboxID.String(), RequestID: done.RequestID, CompanyID: f.CompanyID.String(), MailingID: telemetry.ID(done.MailingID.UUID),
		Attempt: done.Attempt, State: telemetry.In(email.Sent), Since: start,
	}).With("kind", f.Kind)
	if done.Duplicate {
		r.duplicates.Inc()
		log.Warn("SES accepted the email more than once", "attemptId", f.AttemptID)
	}
	if f.OnAccountList {
		r.onAccount.Inc()
		log.Info("SES did not send the email: the address is on the suppression list of the SES account, which all companies share")
	}
	if done.PreviousStatus != email.Sent {
		r.steps.Confirmed()
		log.Log(ctx, telemetry.Record(slog.LevelInfo), "SES confirmed that it accepted the email",
			"previousStatus", done.PreviousStatus, "attemptId", f.AttemptID)
	}
	if done.Suppressed > 0 {
		log.Info("addresses suppressed", "count", done.Suppressed, "suppression", f.Suppress)
	}
}
