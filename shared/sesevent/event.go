// Package sesevent parses SES events, translates them to feedback for package store, and records it. The
// api uses it for the events that SNS posts to /v1/ses/events, the worker for those of an SQS queue.
package sesevent

import (
	"encoding/json"
	"errors"
	"regexp"
	"strings"
	"time"

	"github.com/google/uuid"

	"email-gateway/shared/email"
	"email-gateway/shared/store/feedback"
	"email-gateway/shared/store/suppression"
)

// Kinds of SES events.
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

// Kinds lists all known kinds.
func Kinds() []string {
	return []string{Send, Delivery, DeliveryDelay, Bounce, Complaint, Reject, RenderingFailure, Open, Click, Subscription}
}

// kindName matches the name of any kind, including future ones.
var kindName = regexp.MustCompile(`^[A-Za-z][A-Za-z0-9 _-]{0,49}$`)

// Errors of Parse.
var (
	// ErrNoEvent: SES has sent the message to test a topic.
	ErrNoEvent = errors.New("a test message of SES, not an event")
	// ErrMalformed: the message is not of SES, or in another format, such as that of EventBridge.
	ErrMalformed = errors.New("not an SES event")
)

// SES tests the topic of a new event destination with a text, and that of an identity's notifications with a message of the type.
const (
	destinationTest = "Successfully validated SNS topic for Amazon SES event publishing"
	identityTest    = "AmazonSnsSubscriptionSucceeded"
)

// event is the part of a message that is read. Only the object of its kind is present.
type event struct {
	EventType        string `json:"eventType"`
	NotificationType string `json:"notificationType"` // set instead if an identity publishes, not a configuration set
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

// Parse parses the message of a notification. Unknown kinds are accepted too: they still show that
// SES accepted the email.
func Parse(notificationID, message string) (feedback.Feedback, error) {
	if strings.HasPrefix(message, destinationTest) {
		return feedback.Feedback{}, ErrNoEvent
	}
	var e event
	// A detail of an unexpected type is left out, as encoding/json does: knowing which attempt was
	// accepted is worth more than any detail.
	var odd *json.UnmarshalTypeError
	if err := json.Unmarshal([]byte(message), &e); err != nil && !errors.As(err, &odd) {
		return feedback.Feedback{}, ErrMalformed
	}
	kind := e.EventType
	if kind == "" {
		kind = e.NotificationType
	}
	switch {
	case kind == identityTest:
		return feedback.Feedback{}, ErrNoEvent
	case !kindName.MatchString(kind) || e.Mail.MessageID == "":
		return feedback.Feedback{}, ErrMalformed
	}
	f := feedback.Feedback{
		NotificationID: notificationID, Kind: kind, SESMessageID: cut(e.Mail.MessageID, 200),
		OutboxID: e.tag("outbox_id"), AttemptID: e.tag("attempt_id"), CompanyID: e.tag("company_id"),
		InstallationID: e.tag("installation_id"),
	}
	found := e.content(kind)
	f.OccurredAt = firstTime(found.at, e.Mail.Timestamp)
	f.Event, f.Suppress, f.Note, f.OnAccountList = found.event, found.suppress, cut(found.note, maxText), found.onAccount
	if f.Event == "" {
		return f, nil
	}
	for _, r := range found.recipients {
		f.Addresses = append(f.Addresses, r.Address)
	}
	f.Metadata, f.Masked = found.metadata(f, false), found.metadata(f, true)
	return f, nil
}

// tag returns the id in a tag, uuid.Nil if there is none.
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

// content is the content of an event.
type content struct {
	event      email.EventType
	at         string
	recipients []recipient
	details    map[string]any // "" is left out
	suppress   suppression.Reason
	note       string
	onAccount  bool // SES did not send the email, because the address is on the suppression list of its account
}

func (e *event) content(kind string) content {
	switch kind {
	case Delivery:
		return e.Delivery.content()
	case DeliveryDelay:
		return e.Delay.content()
	case Bounce:
		return e.Bounce.content()
	case Complaint:
		return e.Complaint.content()
	case Reject:
		return content{event: email.EventRejected, details: map[string]any{"reason": e.Reject.Reason}}
	case RenderingFailure:
		return e.Failure.content()
	case Open:
		return content{event: email.EventOpened, at: e.Open.Timestamp}
	case Click:
		return e.Click.content()
	case Subscription:
		return e.Subscription.content()
	}
	return content{}
}

// metadata returns the timeline metadata of the event, without where and with which program an email
// was read. masked is the form stored with the notification.
func (n *content) metadata(f feedback.Feedback, masked bool) map[string]any {
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

// firstTime returns the first text that is a timestamp.
func firstTime(texts ...string) time.Time {
	for _, text := range texts {
		if at, err := time.Parse(time.RFC3339, text); err == nil {
			return at.UTC()
		}
	}
	return time.Time{}
}
