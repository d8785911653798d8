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

// Type says what a message is.
type Type string

const (
	// Notification carries what a publisher, here SES, had to say.
	Notification Type = "Notification"
	// SubscriptionConfirmation asks whether this endpoint wants the topic's messages.
	SubscriptionConfirmation Type = "SubscriptionConfirmation"
	// UnsubscribeConfirmation tells that somebody ended the subscription.
	UnsubscribeConfirmation Type = "UnsubscribeConfirmation"
)

// Message is SNS's envelope as it comes over HTTP.
type Message struct {
	Type      Type
	MessageID string `json:"MessageId"` // the same each time the message is delivered
	TopicARN  string `json:"TopicArn"`
	// Subject is signed when it is there, be it empty.
	Subject          *string
	Message          string
	Timestamp        string
	SignatureVersion string
	Signature        string
	SigningCertURL   string
	// Token and SubscribeURL are there in confirmations only.
	Token        string
	SubscribeURL string
	// Sender is the client that the message came from. The caller of Parse sets it.
	Sender netip.Addr `json:"-"`

	sentAt time.Time
}

// messageID is far wider than the UUIDs that SNS gives.
var messageID = regexp.MustCompile(`^[A-Za-z0-9_-]{1,100}$`)

// Parse reads an envelope. Its errors name the field and never repeat its value.
func Parse(body []byte) (Message, error) {
	decoder := json.NewDecoder(bytes.NewReader(body))
	var m Message
	if err := decoder.Decode(&m); err != nil {
		var wrong *json.UnmarshalTypeError
		if errors.As(err, &wrong) && wrong.Field != "" {
			return Message{}, fmt.Errorf("%s is no text", wrong.Field)
		}
		return Message{}, errors.New("the body is not an SNS message in JSON")
	}
	if _, err := decoder.Token(); !errors.Is(err, io.EOF) {
		return Message{}, errors.New("something follows the SNS message")
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
			return errors.New("Token and SubscribeURL must be there") //nolint:staticcheck // they are names
		}
	default:
		return errors.New("the Type is none that SNS sends")
	}
	for _, field := range [...]struct{ name, value string }{
		{"TopicArn", m.TopicARN},
		{"Message", m.Message},
		{"Signature", m.Signature},
		{"SigningCertURL", m.SigningCertURL},
	} {
		if field.value == "" {
			return fmt.Errorf("%s must be there", field.name)
		}
	}
	if !messageID.MatchString(m.MessageID) {
		return errors.New("MessageId must be 1 to 100 letters, digits, dashes")
	}
	if m.sentAt, err = time.Parse(time.RFC3339, m.Timestamp); err != nil {
		return errors.New("the Timestamp is no time")
	}
	return nil
}

// canonical is the text that SNS signs: names and values in the order of the names'
// bytes, each on a line of its own.
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
