// Package sesevents receives the events of SES over SNS.
package sesevents

import (
	"errors"
	"log/slog"
	"mime"
	"net/http"

	"github.com/gin-gonic/gin"
	"github.com/google/uuid"
	"github.com/prometheus/client_golang/prometheus"

	"email-gateway/api/internal/httpapi/reqbody"
	"email-gateway/api/internal/httpapi/reqctx"
	"email-gateway/api/internal/sns"
	"email-gateway/shared/email"
	"email-gateway/shared/sesevent"
	"email-gateway/shared/steps"
)

// MaxSize is twice the maximum size of an SNS message, which is JSON within JSON (bytes).
const MaxSize = 512 << 10

// Handlers receive SES events over SNS. There is no API key: messages are authenticated by
// their signature. SNS retries after a 5xx and never after a 4xx, so transient errors are a 503,
// and messages that are done or ignored a 200.
type Handlers struct {
	log      *slog.Logger
	verifier *sns.Verifier // nil = no topic
	recorder *sesevent.Recorder
}

// New returns Handlers. They accept no events if verifier is nil.
func New(log *slog.Logger, verifier *sns.Verifier, s sesevent.Store, registry *prometheus.Registry) (*Handlers, error) {
	recorder, err := sesevent.NewRecorder(log, s, steps.New(registry), registry)
	if err != nil {
		return nil, err
	}
	return &Handlers{log: log, verifier: verifier, recorder: recorder}, nil
}

// eventAnswer is the response to SNS, which reads only the status.
type eventAnswer struct {
	Result sesevent.Result `json:"result"`
}

// Results of a message that carries no event.
const (
	confirmed    sesevent.Result = "confirmed"    // subscription confirmed
	unsubscribed sesevent.Result = "unsubscribed" // subscription ended
)

// Receive handles POST /v1/ses/events.
func (h *Handlers) Receive(c *gin.Context) error {
	m, err := h.admit(c)
	if err != nil {
		h.recorder.Count("", sesevent.Refused)
		return err
	}
	result := unsubscribed
	switch m.Type {
	case sns.Notification:
		if result, err = h.apply(c, m); err != nil {
			return err
		}
	case sns.SubscriptionConfirmation:
		h.log.Info("subscription to SES events confirmed", "topic", m.TopicARN)
		result = confirmed
	case sns.UnsubscribeConfirmation:
		h.log.Warn("subscription to SES events ended: no more feedback comes from the topic", "topic", m.TopicARN)
	}
	c.JSON(http.StatusOK, eventAnswer{Result: result})
	return nil
}

// admit reads a message, verifies it, and confirms a subscription.
func (h *Handlers) admit(c *gin.Context) (sns.Message, error) {
	if h.verifier == nil {
		return sns.Message{}, disabled
	}
	m, err := readNotification(c)
	if err != nil {
		return sns.Message{}, err
	}
	err = h.verifier.Verify(c.Request.Context(), m)
	if err == nil && m.Type == sns.SubscriptionConfirmation {
		err = h.verifier.Confirm(c.Request.Context(), m)
	}
	if err != nil {
		return sns.Message{}, h.refuse(m, err)
	}
	return m, nil
}

// readNotification reads the SNS envelope.
func readNotification(c *gin.Context) (sns.Message, error) {
	r := c.Request
	// Raw delivery omits the envelope, and with it the signature.
	if r.Header.Get("X-Amz-Sns-Rawdelivery") == "true" {
		return sns.Message{}, rawDelivery
	}
	media, _, err := mime.ParseMediaType(r.Header.Get("Content-Type"))
	if err != nil || media != "text/plain" && media != "application/json" || reqbody.IsEncoded(r.Header) {
		return sns.Message{}, notSNS
	}
	body, err := reqbody.Read(c)
	if err != nil {
		return sns.Message{}, err
	}
	m, err := sns.Parse(body)
	if err != nil {
		return sns.Message{}, malformedNotification(err)
	}
	m.Sender = reqctx.StateOf(c).Client
	return m, nil
}

// refuse maps the error of a message that cannot be verified or is no event, and logs it: a wrong topic, an unreachable
// certificate or another format may be a configuration mistake.
func (h *Handlers) refuse(m sns.Message, err error) error {
	// The topic may contain arbitrary text.
	h.log.Warn("SNS message rejected", "type", m.Type, "reason", email.MaskText(err.Error()))
	switch {
	case errors.Is(err, sns.ErrUnreachable):
		return errors.Join(snsUnreachable, err)
	case errors.Is(err, sns.ErrTopic):
		return unknownTopic
	case errors.Is(err, sns.ErrStale):
		return staleNotification
	case errors.Is(err, sesevent.ErrMalformed):
		return malformedNotification(err)
	}
	return forgedNotification(err)
}

// apply records an SES event.
func (h *Handlers) apply(c *gin.Context, m sns.Message) (sesevent.Result, error) {
	f, err := sesevent.Parse(m.MessageID, m.Message)
	switch {
	case errors.Is(err, sesevent.ErrNoEvent):
		h.recorder.Count("", sesevent.Ignored)
		h.log.Info("SES has tested the topic", "messageId", m.MessageID, "topic", m.TopicARN)
		return sesevent.Ignored, nil
	case err != nil: // SNS does not retry it: the subscription's dead-letter queue keeps it
		h.recorder.Count("", sesevent.Refused)
		return "", h.refuse(m, err)
	}
	if f.OutboxID != uuid.Nil {
		reqctx.StateOf(c).OutboxID = f.OutboxID.String()
	}
	return h.recorder.Record(c.Request.Context(), f, reqctx.StateOf(c).Began)
}
