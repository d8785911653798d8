package sesevent

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"regexp"
	"strings"

	"email-gateway/shared/store/feedback"
)

// notificationID is wider than the UUIDs that SNS uses.
var notificationID = regexp.MustCompile(`^[A-Za-z0-9_-]{1,100}$`)

// ParseQueued parses a message of a queue that is subscribed to a topic: an SNS notification, or the
// bare event if the subscription has raw message delivery. A notification has the same id as at
// /v1/ses/events. A bare event has none; its hash is used, which is the same each time it is
// delivered.
//
// SNS's signature is not verified: the policy of the queue decides who may send to it.
func ParseQueued(body string) (feedback.Feedback, error) {
	if strings.HasPrefix(body, destinationTest) { // no JSON
		return feedback.Feedback{}, ErrNoEvent
	}
	decoder := json.NewDecoder(bytes.NewReader([]byte(body)))
	var envelope struct{ Type, MessageID, Message *string }
	if err := decoder.Decode(&envelope); err != nil || decoder.More() {
		return feedback.Feedback{}, ErrMalformed
	}
	if envelope.Message == nil || envelope.Type == nil {
		sum := sha256.Sum256([]byte(body))
		return Parse("raw-"+hex.EncodeToString(sum[:]), body)
	}
	if *envelope.Type != "Notification" || envelope.MessageID == nil || !notificationID.MatchString(*envelope.MessageID) {
		return feedback.Feedback{}, ErrMalformed
	}
	return Parse(*envelope.MessageID, *envelope.Message)
}
