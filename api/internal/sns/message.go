package sns

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"regexp"
	"time"
)

// Type is the type of a message.
type Type string

const (
	// Notification carries a message of a publisher, here SES.
	Notification Type = "Notification"
	// SubscriptionConfirmation asks to confirm the subscription of this endpoint.
	SubscriptionConfirmation Type = "SubscriptionConfirmation"
	// UnsubscribeConfirmation reports that the subscription was removed.
	UnsubscribeConfirmation Type = "UnsubscribeConfirmation"
)

// Message is the SNS envelope received over HTTP.
type Message struct {
	Type      Type
	MessageID string `json:"MessageId"` // the same for each delivery of the message
	TopicARN  string `json:"TopicArn"`
	// Subject is signed if it is present, even if empty.
	Subject          *string
	Message          string
	Timestamp        string
	SignatureVersion string
	Signature        string
	SigningCertURL   string
	// Token and SubscribeURL are present only in confirmations.
	Token        string
	SubscribeURL string
	// Sender is the client that sent the message, set by the caller of Parse.
	Sender netip.Addr `json:"-"`

	sentAt time.Time
}

// messageID is wider than the UUIDs that SNS uses.
var messageID = regexp.MustCompile(`^[A-Za-z0-9_-]{1,100}$`)

// Parse parses an envelope. Errors name the field and never contain its value.
func Parse(body []byte) (Message, error) {
	decoder := json.NewDecoder(bytes.NewReader(body))
	var m Message
	if err := decoder.Decode(&m); err != nil {
		var wrong *json.UnmarshalTypeError
		if errors.As(err, &wrong) && wrong.Field != "" {
			return Message{}, fmt.Errorf("%s is not a string", wrong.Field)
		}
		return Message{}, errors.New("the body is not an SNS message in JSON")
	}
	if _, err := decoder.Token(); !errors.Is(err, io.EOF) {
		return Message{}, errors.New("there is data after the SNS message")
	}
	if err := m.check(); err != nil {
		return Message{}, err
	}
	return m, nil
}

func (m *Message) check() (err error) {
	switch m.Type {
	case Notification:
	case SubscriptionConfirmation, UnsubscribeConfirmation:
		if m.Token == "" || m.SubscribeURL == "" {
			return errors.New("Token and SubscribeURL are required") //nolint:staticcheck // they are names
		}
	default:
		return errors.New("the Type is not one that SNS sends")
	}
	for _, field := range [...]struct{ name, value string }{
		{"TopicArn", m.TopicARN},
		{"Message", m.Message},
		{"Signature", m.Signature},
		{"SigningCertURL", m.SigningCertURL},
	} {
		if field.value == "" {
			return fmt.Errorf("%s is required", field.name)
		}
	}
	if !messageID.MatchString(m.MessageID) {
		return errors.New("MessageId must be 1 to 100 letters, digits, dashes")
	}
	if m.sentAt, err = time.Parse(time.RFC3339, m.Timestamp); err != nil {
		return errors.New("the Timestamp is not a timestamp")
	}
	return nil
}

// canonical returns the text that SNS signs: names and values, sorted by name, one per line.
func (m *Message) canonical() []byte {
	var b bytes.Buffer
	line := func(name, value string) { b.WriteString(name + "\n" + value + "\n") }
	line("Message", m.Message)
	line("MessageId", m.MessageID)
	if m.Type == Notification {
		if m.Subject != nil {
			line("Subject", *m.Subject)
		}
	} else {
		line("SubscribeURL", m.SubscribeURL)
	}
	line("Timestamp", m.Timestamp)
	if m.Type != Notification {
		line("Token", m.Token)
	}
	line("TopicArn", m.TopicARN)
	line("Type", string(m.Type))
	return b.Bytes()
}
