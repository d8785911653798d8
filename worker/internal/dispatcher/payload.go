package dispatcher

import (
	"bytes"
	"fmt"
	"regexp"
	"strconv"
	"time"

	"email-gateway/shared/email"
	"email-gateway/shared/store/dispatch"
)

// payload builds a row's task payload, and returns the row's traceparent, "" if it has none. In the row, traceparent is a
// member of the payload; the task carries it in a header, because the schema of the task payload has no such field.
type payload func(row dispatch.DueRow, now time.Time) (job []byte, trace string)

// bulkJob builds the payloads of a bulk queue. A mailing job is published as stored in the row. For a recipient only the id of
// the row is published, so that personal data stays in Postgres.
func bulkJob(queue string) payload {
	return func(row dispatch.DueRow, _ time.Time) ([]byte, string) {
		job, trace := takeTrace(row.Payload)
		if queue == email.QueueRecipients {
			job = fmt.Appendf(nil, `{"outboxId":%q}`, row.ID)
		}
		return job, trace
	}
}

// takeTrace removes the traceparent member from a JSON object's text.
func takeTrace(text []byte) (rest []byte, trace string) {
	if !bytes.Contains(text, []byte(traceMember)) { // nearly always
		return text, ""
	}
	open, isObject := without(text, func(member []byte) bool { return isTrace(member, &trace) })
	if !isObject {
		return text, ""
	}
	return append(bytes.TrimSuffix(open, []byte(",")), '}'), trace
}

// sendJob builds the payloads of emails; maxAttempts is the highest attempt number.
func sendJob(maxAttempts int) payload {
	return func(row dispatch.DueRow, now time.Time) ([]byte, string) { return fillIn(row, maxAttempts, now) }
}

// fillIn returns the row's payload with the fields attempt and enqueuedAt set. All other members,
// unknown ones included, are left unchanged. A payload that is not an object is published
// unchanged, so that the worker fails the email with an error the tenant can see.
func fillIn(row dispatch.DueRow, maxAttempts int, now time.Time) (job []byte, trace string) {
	attempt := min(max(row.Attempts-row.Throttles+1, 1), maxAttempts)
	open, isObject := without(row.Payload, func(member []byte) bool {
		return bytes.HasPrefix(member, []byte(`"attempt"`)) || bytes.HasPrefix(member, []byte(`"enqueuedAt"`)) || isTrace(member, &trace)
	})
	if !isObject {
		return row.Payload, ""
	}
	open = strconv.AppendInt(append(open, `"attempt":`...), int64(attempt), 10)
	return now.UTC().AppendFormat(append(open, `,"enqueuedAt":`...), `"`+time.RFC3339Nano+`"}`), trace
}

const traceMember = `"traceparent"`

// isTrace reports whether the member is the traceparent, and stores its value in trace.
func isTrace(member []byte, trace *string) bool {
	value, is := bytes.CutPrefix(member, []byte(traceMember))
	if is {
		// A traceparent has only hex digits and hyphens: nothing in it is escaped.
		value = bytes.Trim(value, `: "`)
		if traceparent.Match(value) {
			*trace = string(value)
		}
	}
	return is
}

// traceparent is the W3C format. No other text is put into a header, which everyone with access to the broker can read.
var traceparent = regexp.MustCompile(`^00-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}$`)

// without copies a JSON object's text without the members that drop selects and without the closing
// brace; each copied member is followed by a comma. The text comes from a jsonb column, so its
// syntax needs no check; encoding/json takes ten times as long.
func without(text []byte, drop func(member []byte) bool) (open []byte, isObject bool) {
	open = append(make([]byte, 0, len(text)+80), '{')
	rest, isObject := bytes.CutPrefix(text, []byte("{"))
	for isObject {
		member, separator, behind := cutMember(rest)
		if separator != ',' && separator != '}' {
			return nil, false // truncated
		}
		if len(member) > 0 && !drop(member) {
			open = append(append(open, member...), ',')
		}
		if separator == '}' {
			return open, true
		}
		rest = behind
	}
	return nil, false
}

// cutMember splits a JSON object's text after its first member. The separator is a comma or the
// closing brace, or 0 if there is neither.
func cutMember(text []byte) (member []byte, separator byte, rest []byte) {
	depth, quoted := 0, false
	for i := 0; i < len(text); i++ {
		switch c := text[i]; {
		case quoted && c == '\\':
			i++
		case c == '"':
			quoted = !quoted
		case quoted:
		case depth == 0 && (c == ',' || c == '}'):
			return bytes.TrimSpace(text[:i]), c, text[i+1:]
		case c == '{' || c == '[':
			depth++
		case c == '}' || c == ']':
			depth--
		}
	}
	return nil, 0, nil
}
