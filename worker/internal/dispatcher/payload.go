package dispatcher

import (
	"bytes"
	"strconv"
	"time"

	"email-gateway/shared/store"
)

// payload is the row's job with the two fields that are the dispatcher's to fill in:
// which try this is, and when. What else stands in it, fields that this program does
// not know included, is left as it is. A payload that is no object goes out
// untouched, so that the worker fails the email where its tenant can see it.
func payload(row store.DueRow, maxAttempts int, now time.Time) []byte {
	attempt := min(max(row.Attempts-row.Throttles+1, 1), maxAttempts)
	filled := make([]byte, 0, len(row.Payload)+80)
	filled = append(filled, '{')
	rest, isObject := bytes.CutPrefix(row.Payload, []byte("{"))
	for isObject {
		member, separator, behind := cutMember(rest)
		switch separator {
		case ',', '}':
		default:
			return row.Payload // it ended in the middle
		}
		if len(member) > 0 && !bytes.HasPrefix(member, []byte(`"attempt"`)) && !bytes.HasPrefix(member, []byte(`"enqueuedAt"`)) {
			filled = append(append(filled, member...), ',')
		}
		if separator == '}' {
			filled = strconv.AppendInt(append(filled, `"attempt":`...), int64(attempt), 10)
			return now.UTC().AppendFormat(append(filled, `,"enqueuedAt":`...), `"`+time.RFC3339Nano+`"}`)
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
