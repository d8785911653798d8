package httpapi

import (
	"errors"
	"log/slog"
	"mime"
	"net/http"

	"github.com/gin-gonic/gin"
	"github.com/google/uuid"

	"email-gateway/api/internal/sns"
	"email-gateway/shared/email"
	"email-gateway/shared/sesevent"
)

// maxNotification is twice the maximum size of an SNS message, which is JSON within JSON (bytes).
const maxNotification = 512 << 10

// sesEvents receives SES events over SNS. There is no API key: messages are authenticated by
// their signature. SNS retries after a 5xx and never after a 4xx, so transient errors are a 503,
// and messages that are done or ignored a 200.
type sesEvents struct {
	log      *slog.Logger
	verifier *sns.Verifier // nil = no topic
	recorder *sesevent.Recorder
}

func newSESEvents(p Params) (*sesEvents, error) {
	recorder, err := sesevent.NewRecorder(p.Log, p.Store, p.Registry)
	if err != nil {
		return nil, err
	}
	return &sesEvents{log: p.Log, verifier: p.Events, recorder: recorder}, nil
}

// eventAnswer is the response to SNS, which reads only the status.
type eventAnswer struct {
	Result sesevent.Result `json:"result"`
}

// Results of a message that carries no event.
const (
	eventConfirmed    sesevent.Result = "confirmed"    // subscription confirmed
	eventUnsubscribed sesevent.Result = "unsubscribed" // subscription ended
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
	e.recorder.Count("", sesevent.Refused)
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
func (e *sesEvents) apply(c *gin.Context, m sns.Message) (sesevent.Result, error) {
	f, err := sesevent.Parse(m.MessageID, m.Message)
	if err != nil {
		e.recorder.Count("", sesevent.Ignored)
		e.log.Info("SNS message is not an SES event", "messageId", m.MessageID, "topic", m.TopicARN)
		return sesevent.Ignored, nil
	}
	if f.OutboxID != uuid.Nil {
		visitOf(c).outboxID = f.OutboxID.String()
	}
	return e.recorder.Record(c.Request.Context(), f, visitOf(c).began)
}
