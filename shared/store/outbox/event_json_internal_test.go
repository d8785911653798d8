package outbox

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"
	"pgregory.net/rapid"

	"email-gateway/shared/email"
)

// What appendEvents writes means the same as what json.Marshal writes.
func TestAppendEvents(t *testing.T) {
	t.Parallel()
	text := rapid.OneOf(rapid.String(), rapid.StringMatching(`[ -~]{0,20}`), rapid.Just("\x00\xff\u2028<&>\\\""))
	value := rapid.Custom(func(t *rapid.T) any {
		switch rapid.IntRange(0, 8).Draw(t, "kind") {
		case 0:
			return rapid.Int().Draw(t, "int")
		case 1:
			return rapid.Int64().Draw(t, "int64")
		case 2:
			return rapid.Bool().Draw(t, "bool")
		case 3:
			return uuid.UUID(rapid.SliceOfN(rapid.Byte(), 16, 16).Draw(t, "id"))
		case 4:
			return rapid.SliceOf(text).Draw(t, "texts")
		case 5:
			return email.Status(text.Draw(t, "status"))
		case 6:
			return nil
		case 7:
			return time.UnixMicro(rapid.Int64Range(0, 4e15).Draw(t, "at")).UTC()
		}
		return text.Draw(t, "text")
	})
	events := rapid.SliceOf(rapid.Custom(func(t *rapid.T) email.Event {
		e := email.Event{Type: email.EventType(text.Draw(t, "type")), At: time.UnixMicro(rapid.Int64Range(0, 4e15).Draw(t, "at")).UTC()}
		if rapid.Bool().Draw(t, "withDetail") {
			e.Metadata = rapid.MapOf(text, value).Draw(t, "metadata")
		}
		return e
	}))
	rapid.Check(t, func(t *rapid.T) {
		drawn := events.Draw(t, "events")
		if len(drawn) == 0 && rapid.Bool().Draw(t, "nil") {
			drawn = nil
		}
		want, err := json.Marshal(drawn)
		if err != nil {
			t.Fatal(err)
		}
		got, err := appendEvents(nil, drawn)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(decoded(t, want), decoded(t, got)); diff != "" {
			t.Errorf("%s", diff)
		}
	})
}

func decoded(t *rapid.T, text []byte) (value any) {
	t.Helper()
	if err := json.Unmarshal(text, &value); err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	return value
}

// What cannot be encoded is an error of the event's own transition.
func TestAppendEvents_Unencodable(t *testing.T) {
	t.Parallel()
	if _, err := appendEvents(nil, []email.Event{{Metadata: map[string]any{"why": func() {}}}}); err == nil {
		t.Error("a function is encoded")
	}
}

func BenchmarkEvents(b *testing.B) {
	now := time.Now().UTC()
	events := []email.Event{
		{Type: email.EventReceived, At: now, Metadata: map[string]any{"attempt": 1, "jobId": uuid.New()}},
		{Type: email.EventValidated, At: now, Metadata: map[string]any{"validations": []email.Validation{
			email.ValidationIntegrity, email.ValidationOutbox, email.ValidationRecipient, email.ValidationTemplate,
		}}},
		{Type: email.EventSentAttempt, At: now, Metadata: map[string]any{"attempt": 1, "attemptId": uuid.New()}},
	}
	b.Run("json", func(b *testing.B) {
		for b.Loop() {
			_, _ = json.Marshal(events)
		}
	})
	b.Run("append", func(b *testing.B) {
		for b.Loop() {
			_, _ = appendEvents(nil, events)
		}
	})
}
