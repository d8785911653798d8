// Package timeline prints the timeline of an email.
package timeline

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"email-gateway/api/internal/ctl/output"
	"email-gateway/shared/email"
	"email-gateway/shared/store/emails"
)

// Event is one event of an email's timeline.
type Event struct {
	Seq      int             `json:"seq"`
	Type     email.EventType `json:"type"`
	At       time.Time       `json:"createdAt"`
	Metadata map[string]any  `json:"metadata"`
}

// Events converts the events of the database. It masks addresses if masked is set.
func Events(events []emails.TimelineEvent, masked bool) ([]Event, error) {
	views := make([]Event, len(events))
	for i, e := range events {
		views[i] = Event{Seq: e.Seq, Type: e.Type, At: e.CreatedAt.UTC()}
		decoder := json.NewDecoder(bytes.NewReader(e.Metadata))
		decoder.UseNumber() // 250, not 2.5e+02
		if err := decoder.Decode(&views[i].Metadata); err != nil {
			return nil, fmt.Errorf("read event %d: %w", e.Seq, err)
		}
		if masked {
			for name, value := range views[i].Metadata {
				views[i].Metadata[name] = Mask(value)
			}
		}
	}
	return views, nil
}

// Mask masks every address in a decoded JSON value.
func Mask(value any) any {
	switch v := value.(type) {
	case string:
		return email.MaskText(v)
	case []any:
		for i := range v {
			v[i] = Mask(v[i])
		}
	case map[string]any:
		for name := range v {
			v[name] = Mask(v[name])
		}
	}
	return value
}

// Write starts with the acceptance, which is the row itself and not an event.
func Write(w io.Writer, accepted time.Time, events []Event, allowed int) {
	rows := [][]string{{"#", "AT", "AFTER", "EVENT", "DETAILS"}, {"0", output.TimestampMS(accepted), "", "accepted", ""}}
	before := accepted
	for _, e := range events {
		rows = append(rows, []string{
			strconv.Itoa(e.Seq), output.TimestampMS(e.At), "+" + output.Duration(max(0, e.At.Sub(before))), string(e.Type), details(e.Metadata, allowed),
		})
		before = e.At
	}
	output.Table(w, "", rows)
}

// details formats an event's metadata: the error first, then the commonly used fields, then
// the rest.
func details(metadata map[string]any, allowed int) string {
	rest := maps.Clone(metadata)
	take := func(name string) string {
		value := rest[name]
		delete(rest, name)
		switch v := value.(type) {
		case string:
			return v
		case nil:
			return ""
		default:
			text, _ := json.Marshal(v) // it came from JSON
			return string(text)
		}
	}
	var parts []string
	add := func(format, value string) {
		if value != "" {
			parts = append(parts, fmt.Sprintf(format, value))
		}
	}
	code := take("errorCode")
	if group := cmp.Or(take("errorCategory"), take("validation")); group != "" {
		code = fmt.Sprintf("%s (%s)", code, group)
	}
	add("%s", output.CodeAndReason(code, take("errorMessage")))
	add("%s", take("reason"))
	add("try %s of "+strconv.Itoa(allowed), take("attempt"))
	next := take("nextAttemptNumber")
	if next != "" {
		next += " of " + strconv.Itoa(allowed)
	}
	if delay := milliseconds(take("backoffDelay")); delay != "" {
		next += " in " + delay
	}
	add("next is try %s", next)
	add("from %s", take("oldSendAt"))
	add("to %s", take("newSendAt"))
	add("SES id %s", take("sesMessageId"))
	add("took %s", milliseconds(take("durationMs")))
	// The row or the event type already says these.
	for _, name := range []string{"validations", "jobId", "willRetry", "outcomeUnknown"} {
		delete(rest, name)
	}
	for _, name := range slices.Sorted(maps.Keys(rest)) {
		add(name+" %s", take(name))
	}
	return strings.Join(parts, "; ")
}

// milliseconds formats a number of milliseconds; "" for anything else.
func milliseconds(text string) string {
	ms, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		return ""
	}
	return output.Duration(time.Duration(ms) * time.Millisecond)
}
