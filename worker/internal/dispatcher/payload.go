package dispatcher

import (
	"bytes"
	"fmt"
	"strconv"
	"time"

	"email-gateway/shared/email"
	"email-gateway/shared/store"
)

// payload is what a row's task carries.
type payload func(row store.DueRow, now time.Time) []byte

// bulkJob is the payload of a queue of bulk work: a mailing's job as it stands in the
// row, a recipient as the row's id alone. Personal data stays in Postgres.
func bulkJob(queue string) payload {
	return func(row store.DueRow, _ time.Time) []byte {
		if queue == email.QueueRecipients {
			return fmt.Appendf(nil, `{"outboxId":%q}`, row.ID)
		}
		return row.Payload
	}
}

// sendJob is the payload of an email whose tries are bounded by maxAttempts.
func sendJob(maxAttempts int) payload {
	return func(row store.DueRow, now time.Time) []byte { return fillIn(row, maxAttempts, now) }
}

// fillIn is the row's job with the two fields that are the dispatcher's to fill in:
// which try this is, and when. What else stands in it, fields that this program does
// not know included, is left as it is. A payload that is no object goes out
// untouched, so that the worker fails the email where its tenant can see it.
func fillIn(row store.DueRow, maxAttempts int, now time.Time) []byte {
	attempt := min(max(row.Attempts-row.Throttles+1, 1), maxAttempts)
	job := make([]byte, 0, len(row.Payload)+80)
	job = append(job, '{')
	rest, isObject := bytes.CutPrefix(row.Payload, []byte("{"))
	for isObject {
		member, separator, behind := cutMember(rest)
		switch separator {
		case ',', '}':
		default:
			return row.Payload // it ended in the middle
		}
		if len(member) > 0 && !bytes.HasPrefix(member, []byte(`"attempt"`)) && !bytes.HasPrefix(member, []byte(`"enqueuedAt"`)) {
			job = append(append(job, member...), ',')
		}
		if separator == '}' {
			job = strconv.AppendInt(append(job, `"attempt":`...), int64(attempt), 10)
			return now.UTC().AppendFormat(append(job, `,"enqueuedAt":`...), `"`+time.RFC3339Nano+`"}`)
		}
		rest = behind
	}
	return row.Payload
}

// cutMember cuts a JSON object's text behind its first member and returns the
// character that ends it: a comma or the closing brace, or 0 if there is neither.
// The text comes from a jsonb column, hence its syntax needs no checking; reading it
// with encoding/json takes ten times as long.
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
