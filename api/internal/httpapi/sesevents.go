package httpapi

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"mime"
	"net/http"
	"slices"

	"github.com/gin-gonic/gin"
	"github.com/google/uuid"
	"github.com/prometheus/client_golang/prometheus"

	"email-gateway/api/internal/sesevent"
	"email-gateway/api/internal/sns"
	"email-gateway/shared/email"
	"email-gateway/shared/store"
	"email-gateway/shared/telemetry"
)

// maxNotification is twice the maximum size of an SNS message, which is JSON within JSON (bytes).
const maxNotification = 512 << 10

// FeedbackStore is the part of *store.Store that records the provider's events.
type FeedbackStore interface {
	RecordFeedback(ctx context.Context, f store.Feedback) (store.FeedbackResult, error)
}

// sesEvents receives SES events over SNS. There is no API key: messages are authenticated by
// their signature. SNS retries after a 5xx and never after a 4xx, so transient errors are a 503,
// and messages that are done or ignored a 200.
type sesEvents struct {
	log        *slog.Logger
	store      FeedbackStore
	verifier   *sns.Verifier // nil = no topic
	received   *prometheus.CounterVec
	duplicates prometheus.Counter
}

func newSESEvents(p Params) (*sesEvents, error) {
	e := &sesEvents{
		log: p.Log, store: p.Store, verifier: p.Events,
		received: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "ses_events_total", Help: "SES events received, by kind and result.",
		}, []string{"kind", "result"}),
		duplicates: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "duplicates_confirmed_total", Help: "Emails that SES confirmed to have accepted more than once.",
		}),
	}
	for _, kind := range sesevent.Kinds() {
		e.received.WithLabelValues(kind, eventApplied)
	}
	if err := errors.Join(p.Registry.Register(e.received), p.Registry.Register(e.duplicates)); err != nil {
		return nil, fmt.Errorf("register metrics: %w", err)
	}
	return e, nil
}

// eventAnswer is the response to SNS, which reads only the status.
type eventAnswer struct {
	Result string `json:"result"`
}

// Results of a notification.
const (
	eventApplied      = "applied"
	eventRepeated     = "repeated"     // received before
	eventUnmatched    = "unmatched"    // not about an attempt of this installation
	eventIgnored      = "ignored"      // not an SES event
	eventConfirmed    = "confirmed"    // subscription confirmed
	eventUnsubscribed = "unsubscribed" // subscription ended
)

// receive handles POST /v1/ses/events.
func (e *sesEvents) receive(c *gin.Context) error {
	if e.verifier == nil {
		return eventsDisabled
	}
	m, err := readNotification(c)
	if err != nil {
		return err
	}
	ctx := c.Request.Context()
	if err := e.verifier.Verify(ctx, m); err != nil {
		return e.refuse(m, err)
	}
	result := eventUnsubscribed
	switch m.Type {
	case sns.Notification:
		result, err = e.apply(c, m)
	case sns.SubscriptionConfirmation:
		if err = e.verifier.Confirm(ctx, m); err != nil {
			return e.refuse(m, err)
		}
		e.log.Info("subscription to SES events confirmed", "topic", m.TopicARN)
		result = eventConfirmed
	case sns.UnsubscribeConfirmation:
		e.log.Warn("subscription to SES events ended: no more feedback comes from the topic", "topic", m.TopicARN)
	}
	if err != nil {
		return err
	}
	c.JSON(http.StatusOK, eventAnswer{Result: result})
	return nil
}

// readNotification reads the SNS envelope.
func readNotification(c *gin.Context) (sns.Message, error) {
	r := c.Request
	// Raw delivery omits the envelope, and with it the signature.
	if r.Header.Get("X-Amz-Sns-Rawdelivery") == "true" {
		return sns.Message{}, rawDelivery
	}
	media, _, err := mime.ParseMediaType(r.Header.Get("Content-Type"))
	if err != nil || media != "text/plain" && media != "application/json" || r.Header.Get("Content-Encoding") != "" {
		return sns.Message{}, notSNS
	}
	body, err := readBody(c)
	if err != nil {
		return sns.Message{}, err
	}
	m, err := sns.Parse(body)
	if err != nil {
		return sns.Message{}, malformedNotification(err)
	}
	m.Sender = visitOf(c).client
	return m, nil
}

// refuse maps the error of a message that cannot be verified, and logs it: a wrong topic or an
// unreachable certificate may be a configuration mistake.
func (e *sesEvents) refuse(m sns.Message, err error) error {
	e.received.WithLabelValues("other", "refused").Inc()
	// The topic may contain arbitrary text.
	e.log.Warn("SNS message rejected", "type", m.Type, "reason", email.MaskText(err.Error()))
	switch {
	case errors.Is(err, sns.ErrUnreachable):
		return errors.Join(snsUnreachable, err)
	case errors.Is(err, sns.ErrTopic):
		return unknownTopic
	case errors.Is(err, sns.ErrStale):
		return staleNotification
	}
	return forgedNotification(err)
}

// apply records an SES event.
func (e *sesEvents) apply(c *gin.Context, m sns.Message) (string, error) {
	f, err := sesevent.Parse(m.MessageID, m.Message)
	if err != nil {
		e.received.WithLabelValues("other", eventIgnored).Inc()
		e.log.Info("SNS message is not an SES event", "messageId", m.MessageID, "topic", m.TopicARN)
		return eventIgnored, nil
	}
	if f.OutboxID != uuid.Nil {
		visitOf(c).outboxID = f.OutboxID.String()
	}
	done, err := e.store.RecordFeedback(c.Request.Context(), f)
	if err != nil {
		return "", err
	}
	result := eventApplied
	switch {
	case done.Repeated:
		result = eventRepeated
	case done.Unmatched:
		result = eventUnmatched
	}
	kind := f.Kind
	if !slices.Contains(sesevent.Kinds(), kind) {
		kind = "other" // the values of a label must be bounded
	}
	e.received.WithLabelValues(kind, result).Inc()
	if result == eventApplied {
		e.logFeedback(visitOf(c), f, done)
	}
	return result, nil
}

// logFeedback logs the effects of an event.
func (e *sesEvents) logFeedback(v *requestState, f store.Feedback, done store.FeedbackResult) {
	log := telemetry.EmailLogger(e.log, telemetry.Email{
		OutboxID: f.OutboxID.String(), RequestID: done.RequestID, CompanyID: f.CompanyID.String(), MailingID: telemetry.ID(done.MailingID.UUID),
		Attempt: done.Attempt, State: telemetry.In(email.Sent), Since: v.began,
	}).With("kind", f.Kind)
	if done.Duplicate {
		e.duplicates.Inc()
		log.Warn("SES accepted the email more than once", "attemptId", f.AttemptID)
	}
	if done.Was != email.Sent {
		log.Info("SES confirmed that it accepted the email", "was", done.Was, "attemptId", f.AttemptID)
	}
	if done.Suppressed > 0 {
		log.Info("addresses suppressed", "count", done.Suppressed, "suppression", f.Suppress)
	}
}
