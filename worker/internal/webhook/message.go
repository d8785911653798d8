package webhook

import (
	"encoding/json"
	"time"

	webhookstore "email-gateway/shared/store/webhook"
)

// CodeEventGone: the event of a failed delivery is no longer stored.
const CodeEventGone = "EVENT_EXPIRED"

// Event is one event of a company, or a test.
type Event = webhookstore.Event

// maxBody is the maximum size of a body in the specification, in bytes.
const maxBody = 20_000

// body returns the JSON body of a request. If the data is too large, body drops only its details, because an event
// without data would be useless.
func body(e Event) []byte {
	payload := struct {
		Type      string          `json:"type"`
		Timestamp time.Time       `json:"timestamp"`
		Data      json.RawMessage `json:"data"`
	}{e.Type, e.At.UTC(), e.Data}
	text, err := json.Marshal(payload)
	if err == nil && len(text) <= maxBody {
		return text
	}
	payload.Data = brief(e.Data)
	text, _ = json.Marshal(payload) // texts and a time
	return text
}

// brief returns the data without fields that are objects, arrays or long texts.
func brief(data json.RawMessage) json.RawMessage {
	var all, rest map[string]any
	if json.Unmarshal(data, &all) != nil {
		return json.RawMessage(`{"truncated":true}`)
	}
	rest = map[string]any{"truncated": true}
	for name, value := range all {
		switch v := value.(type) {
		case map[string]any, []any:
		case string:
			if len(v) <= 1000 {
				rest[name] = v
			}
		default:
			rest[name] = v
		}
	}
	text, err := json.Marshal(rest)
	if err != nil || len(text) > maxBody-1000 {
		return json.RawMessage(`{"truncated":true}`)
	}
	return text
}

// testEvent returns the event of a test delivery.
func testEvent(d webhookstore.Delivery, now time.Time) Event {
	return Event{ID: d.EventID, Type: d.Type, At: now, Data: json.RawMessage(`{"message":"A test of this webhook endpoint. No email is involved."}`)}
}
