package dispatcher

import (
	"bytes"
	"fmt"
	"regexp"
	"strconv"
	"time"

	"email-gateway/shared/email"
	"email-gateway/shared/store"
)

// payload is what a row's task carries, and the trace that the row belongs to, "" if it
// belongs to none. The trace stands in the row's payload under the name traceparent, and
// goes into the task's header: what a task carries is a contract, and has no such field.
type payload func(row store.DueRow, now time.Time) (job []byte, trace string)

// bulkJob is the payload of a queue of bulk work: a mailing's job as it stands in the
// row, a recipient as the row's id alone. Personal data stays in Postgres.
func bulkJob(queue string) payload {
	return func(row store.DueRow, _ time.Time) ([]byte, string) {
		job, trace := takeTrace(row.Payload)
		if queue == email.QueueRecipients {
			job = fmt.Appendf(nil, `{"outboxId":%q}`, row.ID)
		}
		return job, trace
	}
}

// takeTrace takes the trace out of a JSON object's text.
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

// sendJob is the payload of an email whose tries are bounded by maxAttempts.
func sendJob(maxAttempts int) payload {
	return func(row store.DueRow, now time.Time) ([]byte, string) { return fillIn(row, maxAttempts, now) }
}

// fillIn is the row's job with the two fields that are the dispatcher's to fill in:
// which try this is, and when. What else stands in it, fields that this program does
// not know included, is left as it is. A payload that is no object goes out
// untouched, so that the worker fails the email where its tenant can see it.
func fillIn(row store.DueRow, maxAttempts int, now time.Time) (job []byte, trace string) {
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

// isTrace says whether the member is the trace, and puts it there if it is one.
func isTrace(member []byte, trace *string) bool {
	value, is := bytes.CutPrefix(member, []byte(traceMember))
	if is {
		// It is of hex digits and hyphens: nothing in it is escaped.
		value = bytes.Trim(value, `: "`)
		if traceparent.Match(value) {
			*trace = string(value)
		}
	}
	return is
}

// traceparent is W3C's form. Nothing else gets into a header, which brokers show to
// everybody who may look.
var traceparent = regexp.MustCompile(`^00-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}$`)

// without copies a JSON object's text but for the members that drop finds, and for the
// closing brace: behind each member that stays there is a comma. The text comes from a
// jsonb column, hence its syntax needs no checking; reading it with encoding/json takes
// ten times as long.
func without(text []byte, drop func(member []byte) bool) (open []byte, isObject bool) {
	open = append(make([]byte, 0, len(text)+80), '{')
	rest, isObject := bytes.CutPrefix(text, []byte("{"))
	for isObject {
		member, separator, behind := cutMember(rest)
		if separator != ',' && separator != '}' {
			return nil, false // it ended in the middle
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

// cutMember cuts a JSON object's text behind its first member and returns the
// character that ends it: a comma or the closing brace, or 0 if there is neither.
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
