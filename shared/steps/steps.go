// Package steps counts email transitions: in the worker those of an attempt, in the dispatcher
// those of emails that expire, are recovered or are cancelled with their mailing, and in the program
// that receives SES's events (api or worker) those of emails that an event confirms. All use the same
// metric names and each transition is counted once, so a sum over the programs is correct.
package steps

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"email-gateway/shared/email"
	"email-gateway/shared/store/outbox"
	"email-gateway/shared/telemetry"
)

// Counter counts one process's transitions. All label values are initialized, so that a rate sees
// the first event.
type Counter struct {
	transitions *prometheus.CounterVec
	finals      *prometheus.CounterVec
	emails      *prometheus.CounterVec
	retries     *prometheus.CounterVec
}

// New registers the counters. categories are the error categories after which the program retries.
func New(registry prometheus.Registerer, categories ...string) *Counter {
	c := &Counter{
		transitions: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "pipeline_state_transitions_total", Help: "Email events written, by type.",
		}, []string{"state"}),
		finals: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "pipeline_final_state_total", Help: "Emails that reached a final status, by status.",
		}, []string{"state"}),
		emails: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "mailing_emails_total", Help: "Emails sent and failed.",
		}, []string{"status"}),
		retries: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "pipeline_retry_total", Help: "Attempts followed by a retry, by error category.",
		}, []string{"category"}),
	}
	for _, t := range email.EventTypes() {
		if !t.IsFeedback() && t != email.EventRescheduled { // written by the api
			c.transitions.WithLabelValues(string(t))
		}
	}
	for _, s := range email.Statuses() {
		if s.Final() {
			c.finals.WithLabelValues(string(s))
		}
	}
	c.emails.WithLabelValues(sent)
	c.emails.WithLabelValues(failed)
	for _, category := range categories {
		c.retries.WithLabelValues(category)
	}
	registry.MustRegister(c.transitions, c.finals, c.emails, c.retries)
	return c
}

// The two values of mailing_emails_total.
const (
	sent   = "sent"
	failed = "failed"
)

// Took counts written events, and RETRY_SCHEDULED events by errorCategory too.
func (c *Counter) Took(events []email.Event) {
	for _, e := range events {
		c.transitions.WithLabelValues(string(e.Type)).Inc()
		if e.Type == email.EventRetryScheduled {
			c.retries.WithLabelValues(fmt.Sprint(e.Metadata["errorCategory"])).Inc()
		}
	}
}

// Confirmed counts an email that SES's feedback made SENT.
func (c *Counter) Confirmed() {
	c.transitions.WithLabelValues(string(email.EventSent)).Inc()
	c.Ended(email.Sent)
}

// Ended counts an email that reached a final status.
func (c *Counter) Ended(status email.Status) {
	c.finals.WithLabelValues(string(status)).Inc()
	switch status {
	case email.Sent:
		c.emails.WithLabelValues(sent).Inc()
	case email.Failed:
		c.emails.WithLabelValues(failed).Inc()
	}
}

// Advancer changes an email's status. *outbox.Advancer implements it.
type Advancer interface {
	Advance(ctx context.Context, t outbox.Transition) (outbox.Advanced, error)
}

// Watch returns an Advancer that counts and logs transitions.
func (c *Counter) Watch(a Advancer, log *slog.Logger) Advancer { return watched{a, c, log} }

type watched struct {
	Advancer
	counter *Counter
	log     *slog.Logger
}

func (w watched) Advance(ctx context.Context, t outbox.Transition) (outbox.Advanced, error) {
	start := time.Now()
	done, err := w.Advancer.Advance(ctx, t)
	if err == nil && done.Applied {
		w.moved(ctx, t, done, start)
		w.counter.Took(t.Events)
		if t.Status.Final() {
			w.counter.Ended(t.Status)
		}
	}
	return done, err
}

// moved logs a transition in the worker's format.
func (w watched) moved(ctx context.Context, t outbox.Transition, done outbox.Advanced, start time.Time) {
	level := levelOf(t.Status)
	if !w.log.Enabled(ctx, level) {
		return
	}
	log := telemetry.EmailLogger(w.log, telemetry.Email{
		OutboxID: t.ID.String(), RequestID: done.RequestID, CompanyID: telemetry.ID(done.CompanyID), MailingID: telemetry.ID(done.MailingID),
		Attempt: done.Attempts - done.Throttles, State: telemetry.In(t.Status), Since: start,
	})
	if t.ErrorCode != "" {
		log = log.With("code", t.ErrorCode, "reason", email.MaskText(t.ErrorReason))
	}
	log.Log(ctx, level, "email moved")
}

// levelOf is debug for transitions that one request causes for many emails: that request logs their
// number.
func levelOf(status email.Status) slog.Level {
	switch status {
	case email.Failed:
		return telemetry.Record(slog.LevelError)
	case email.RetryScheduled, email.OutcomeUnknown:
		return telemetry.Record(slog.LevelWarn)
	case email.Expired, email.Sent, email.Suppressed:
		return telemetry.Record(slog.LevelInfo)
	}
	return slog.LevelDebug
}
