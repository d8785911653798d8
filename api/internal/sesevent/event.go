// Package sesevent reads what SES publishes about an email and says what it means for
// the gateway. The handler of /v1/ses/events uses it, and package store does what it says.
package sesevent

import (
	"encoding/json"
	"errors"
	"regexp"
	"time"

	"github.com/google/uuid"

	"email-gateway/shared/email"
	"email-gateway/shared/store"
)

// The kinds that SES knows, in its own words.
const (
	Send             = "Send"
	Delivery         = "Delivery"
	DeliveryDelay    = "DeliveryDelay"
	Bounce           = "Bounce"
	Complaint        = "Complaint"
	Reject           = "Reject"
	RenderingFailure = "Rendering Failure"
	Open             = "Open"
	Click            = "Click"
	Subscription     = "Subscription"
)

// Kinds lists them.
func Kinds() []string {
	return []string{Send, Delivery, DeliveryDelay, Bounce, Complaint, Reject, RenderingFailure, Open, Click, Subscription}
}

// kindName is that of any kind, also of those to come.
var kindName = regexp.MustCompile(`^[A-Za-z][A-Za-z _-]{0,49}$`)

// ErrNoEvent: the message tells of no email. SES sends such a one when an event
// destination is made.
var ErrNoEvent = errors.New("no event of SES")

// event is what is read of a message. The object that belongs to the kind is there,
// the others are not.
type event struct {
	EventType        string `json:"eventType"`
	NotificationType string `json:"notificationType"` // instead, where an identity and not a configuration set publishes
	Mail             struct {
		Timestamp string              `json:"timestamp"`
		MessageID string              `json:"messageId"`
		Tags      map[string][]string `json:"tags"`
	} `json:"mail"`
	Delivery     delivery     `json:"delivery"`
	Delay        delay        `json:"deliveryDelay"`
	Bounce       bounce       `json:"bounce"`
	Complaint    complaint    `json:"complaint"`
	Reject       reject       `json:"reject"`
	Failure      failure      `json:"failure"`
	Open         open         `json:"open"`
	Click        click        `json:"click"`
	Subscription subscription `json:"subscription"`
}

// Parse reads the message of a notification. A kind that SES has invented since is
// taken too: it says, if no more, that the email was accepted.
func Parse(notificationID, message string) (store.Feedback, error) {
	var e event
	// A detail that is not what it used to be is left out, as encoding/json does, and costs
	// no more than itself: which attempt was accepted is worth more than all of them.
	var odd *json.UnmarshalTypeError
	if err := json.Unmarshal([]byte(message), &e); err != nil && !errors.As(err, &odd) {
		return store.Feedback{}, ErrNoEvent
	}
	kind := e.EventType
	if kind == "" {
		kind = e.NotificationType
	}
	if !kindName.MatchString(kind) || e.Mail.MessageID == "" {
		return store.Feedback{}, ErrNoEvent
	}
	f := store.Feedback{
		NotificationID: notificationID, Kind: kind, SESMessageID: cut(e.Mail.MessageID, 200),
		OutboxID: e.tag("outbox_id"), AttemptID: e.tag("attempt_id"), CompanyID: e.tag("company_id"),
	}
	told := e.tell(kind)
	f.OccurredAt = firstTime(told.at, e.Mail.Timestamp)
	f.Event, f.Suppress, f.Note = told.event, told.suppress, cut(told.note, maxText)
	if f.Event == "" {
		return f, nil
	}
	for _, r := range told.recipients {
		f.Addresses = append(f.Addresses, r.Address)
	}
	f.Metadata, f.Masked = told.metadata(f, false), told.metadata(f, true)
	return f, nil
}

// tag is the id in a tag; uuid.Nil if there is none.
func (e *event) tag(name string) uuid.UUID {
	values := e.Mail.Tags[name]
	if len(values) == 0 {
		return uuid.Nil
	}
	id, err := uuid.Parse(values[0])
	if err != nil {
		return uuid.Nil
	}
	return id
}

// news is what a kind's object tells.
type news struct {
	event      email.EventType
	at         string
	recipients []recipient
	details    map[string]any // "" is left out
	suppress   store.SuppressionReason
	note       string
}

func (e *event) tell(kind string) news {
	switch kind {
	case Delivery:
		return e.Delivery.news()
	case DeliveryDelay:
		return e.Delay.news()
	case Bounce:
		return e.Bounce.news()
	case Complaint:
		return e.Complaint.news()
	case Reject:
		return news{event: email.EventRejected, details: map[string]any{"reason": e.Reject.Reason}}
	case RenderingFailure:
		return e.Failure.news()
	case Open:
		return news{event: email.EventOpened, at: e.Open.Timestamp}
	case Click:
		return e.Click.news()
	case Subscription:
		return e.Subscription.news()
	}
	return news{}
}

// metadata is what the timeline tells of the news: never whence and with what program
// somebody read an email. masked is what the inbox keeps of it.
func (n *news) metadata(f store.Feedback, masked bool) map[string]any {
	text := func(s string) string { return cut(s, maxText) }
	if masked {
		text = func(s string) string { return email.MaskText(cut(s, maxText)) }
	}
	m := map[string]any{"sesMessageId": f.SESMessageID, "attemptId": f.AttemptID}
	if !f.OccurredAt.IsZero() {
		m["occurredAt"] = f.OccurredAt
	}
	for name, value := range n.details {
		if words, ok := value.(string); ok {
			value = text(words)
		}
		if value != "" {
			m[name] = value
		}
	}
	recipients := make([]map[string]string, 0, len(n.recipients))
	for _, r := range n.recipients {
		shown := map[string]string{"address": cut(r.Address, maxText)}
		if masked {
			shown["address"] = email.MaskAddress(r.Address)
		}
		for name, value := range map[string]string{"action": r.Action, "status": r.Status, "diagnosticCode": r.Diagnosis} {
			if value != "" {
				shown[name] = text(value)
			}
		}
		recipients = append(recipients, shown)
	}
	if len(recipients) > 0 {
		m["recipients"] = recipients
	}
	return m
}

// firstTime is the first text that is a time.
func firstTime(texts ...string) time.Time {
	for _, text := range texts {
		if at, err := time.Parse(time.RFC3339, text); err == nil {
			return at.UTC()
		}
	}
	return time.Time{}
}
