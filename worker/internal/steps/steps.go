// Package steps counts the steps that emails take: in the worker those of an attempt, in
// the dispatcher those of an email that expires, is brought back or is cancelled with its
// mailing. Both count under the same names, so that a sum over both programs is right.
package steps

import (
	"context"

	"github.com/prometheus/client_golang/prometheus"

	"email-gateway/shared/email"
	"email-gateway/shared/store"
)

// Counter counts one process's steps. Its label values are the states, which are known,
// and each of them is shown from the start: a rate sees the first of its kind.
type Counter struct {
	transitions *prometheus.CounterVec
	finals      *prometheus.CounterVec
	emails      *prometheus.CounterVec
}

// New registers the counters.
func New(registry prometheus.Registerer) *Counter {
	c := &Counter{
		transitions: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "pipeline_state_transitions_total", Help: "Events of emails written by worker and dispatcher, by type.",
		}, []string{"state"}),
		finals: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "pipeline_final_state_total", Help: "Emails ended by worker and dispatcher, by final status.",
		}, []string{"state"}),
		emails: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "mailing_emails_total", Help: "Emails sent and failed.",
		}, []string{"status"}),
	}
	for _, t := range email.EventTypes() {
		if !t.IsFeedback() { // that is for the api to write
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
	registry.MustRegister(c.transitions, c.finals, c.emails)
	return c
}

// The two values of mailing_emails_total.
const (
	sent   = "sent"
	failed = "failed"
)

// Took counts events that were written.
func (c *Counter) Took(events []email.Event) {
	for _, e := range events {
		c.transitions.WithLabelValues(string(e.Type)).Inc()
	}
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

// Advancer moves emails. *store.Advancer is one.
type Advancer interface {
	Advance(ctx context.Context, t store.Transition) (store.Advanced, error)
}

// Watch is an Advancer whose moves are counted.
func (c *Counter) Watch(a Advancer) Advancer { return watched{a, c} }

type watched struct {
	Advancer
	counter *Counter
}

func (w watched) Advance(ctx context.Context, t store.Transition) (store.Advanced, error) {
	done, err := w.Advancer.Advance(ctx, t)
	if err == nil && done.Applied {
		w.counter.Took(t.Events)
		if t.Status.Final() {
			w.counter.Ended(t.Status)
		}
	}
	return done, err
}
