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

// maxNotification is twice what SNS carries: the message in it is JSON within JSON.
const maxNotification = 512 << 10

// FeedbackStore is the database as far as the provider's events go.
type FeedbackStore interface {
	RecordFeedback(ctx context.Context, f store.Feedback) (store.FeedbackResult, error)
}

// sesEvents takes SES's events, which come over SNS. There is no API key: the
// signature says who sends them. SNS tries again after a 5xx and never after a 4xx, so
// what may pass another time is a 503, and what is done or never to be done a 200.
type sesEvents struct {
	log        *slog.Logger
	store      FeedbackStore
	verifier   *sns.Verifier // nil = there is no topic
	taken      *prometheus.CounterVec
	duplicates prometheus.Counter
}

func newSESEvents(p Params) (*sesEvents, error) {
	e := &sesEvents{
		log: p.Log, store: p.Store, verifier: p.Events,
		taken: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "ses_events_total", Help: "Events of SES taken in, by kind and what became of them.",
		}, []string{"kind", "result"}),
		duplicates: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "duplicates_confirmed_total", Help: "Acceptances that SES confirmed of emails it had accepted already.",
		}),
	}
	for _, kind := range sesevent.Kinds() {
		e.taken.WithLabelValues(kind, eventApplied)
	}
	if err := errors.Join(p.Registry.Register(e.taken), p.Registry.Register(e.duplicates)); err != nil {
		return nil, fmt.Errorf("register metrics: %w", err)
	}
	return e, nil
}

// eventAnswer is what SNS is told; it reads no more than the status.
type eventAnswer struct {
	Result string `json:"result"`
}

// What becomes of a notification.
const (
	eventApplied      = "applied"
	eventRepeated     = "repeated"     // it was taken in before
	eventUnmatched    = "unmatched"    // about no attempt of this installation
	eventIgnored      = "ignored"      // no event of SES
	eventConfirmed    = "confirmed"    // the subscription
	eventUnsubscribed = "unsubscribed" // noted
)

// take answers POST /v1/ses/events.
func (e *sesEvents) take(c *gin.Context) error {
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

// readNotification reads SNS's envelope.
func readNotification(c *gin.Context) (sns.Message, error) {
	r := c.Request
	// Raw delivery takes the envelope away, and with it the signature.
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

// refuse says why a message is not SNS's, and writes it into the log: a wrong topic or
// a certificate that cannot be fetched is somebody's setting.
func (e *sesEvents) refuse(m sns.Message, err error) error {
	e.taken.WithLabelValues("other", "refused").Inc()
	// The topic may be anybody's text.
	e.log.Warn("message refused that claims to be from SNS", "type", m.Type, "reason", email.MaskText(err.Error()))
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

// apply records what SES tells.
func (e *sesEvents) apply(c *gin.Context, m sns.Message) (string, error) {
	f, err := sesevent.Parse(m.MessageID, m.Message)
	if err != nil {
		e.taken.WithLabelValues("other", eventIgnored).Inc()
		e.log.Info("message that is no event of SES", "messageId", m.MessageID, "topic", m.TopicARN)
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
		kind = "other" // a label must not grow with what others invent
	}
	e.taken.WithLabelValues(kind, result).Inc()
	if result == eventApplied {
		e.tell(visitOf(c), f, done)
	}
	return result, nil
}

// tell logs what somebody may want to know of.
func (e *sesEvents) tell(v *visit, f store.Feedback, done store.FeedbackResult) {
	log := telemetry.EmailLogger(e.log, telemetry.Email{
		OutboxID: f.OutboxID.String(), RequestID: done.RequestID, CompanyID: f.CompanyID.String(), MailingID: telemetry.ID(done.MailingID.UUID),
		Attempt: done.Attempt, State: telemetry.In(email.Sent), Since: v.began,
	}).With("kind", f.Kind)
	if done.Duplicate {
		e.duplicates.Inc()
		log.Warn("SES accepted the email more than once", "attemptId", f.AttemptID)
	}
	if done.Was != email.Sent {
		log.Info("SES confirms that it accepted the email", "was", done.Was, "attemptId", f.AttemptID)
	}
	if done.Suppressed > 0 {
		log.Info("addresses suppressed", "count", done.Suppressed, "suppression", f.Suppress)
	}
}
