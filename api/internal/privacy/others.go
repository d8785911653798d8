package privacy

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"email-gateway/shared/email"
)

// withoutOthers takes out of an email's row, log or dead letter, column by column, whom
// else it went to without the person being told: those in bcc, and whomever its timeline
// and its errors name. Who stands in cc the person has seen.
func (p *subject) withoutOthers(columns map[string]json.RawMessage) error {
	var payload map[string]json.RawMessage
	if err := json.Unmarshal(orNull(columns["payload"]), &payload); err != nil {
		return fmt.Errorf("read a payload: %w", err)
	}
	own := slices.Clone(p.Addresses)
	for _, column := range []json.RawMessage{columns["recipient"], columns["email"], payload["to"]} {
		var address *string
		if err := json.Unmarshal(orNull(column), &address); err != nil {
			return fmt.Errorf("read an address: %w", err)
		}
		if address != nil {
			own = append(own, strings.ToLower(*address))
		}
	}
	var bcc []string
	if err := json.Unmarshal(orNull(payload["bcc"]), &bcc); err != nil {
		return fmt.Errorf("read bcc: %w", err)
	}
	if bcc != nil {
		// What is marshalled here and below was JSON, or is made of strings.
		payload["bcc"], _ = json.Marshal(slices.DeleteFunc(bcc, func(a string) bool { return !slices.Contains(own, strings.ToLower(a)) }))
		columns["payload"], _ = json.Marshal(payload)
	}
	for _, name := range []string{"events", "error_reason", "last_error"} {
		if columns[name] == nil {
			continue
		}
		decoder := json.NewDecoder(bytes.NewReader(columns[name]))
		decoder.UseNumber()
		var told any
		if err := decoder.Decode(&told); err != nil {
			return fmt.Errorf("read %s: %w", name, err)
		}
		columns[name], _ = json.Marshal(maskOthers(told, own))
	}
	return nil
}

// maskOthers masks the addresses in a decoded JSON value; one that is own stays, unless it
// stands in a sentence.
func maskOthers(value any, own []string) any {
	switch v := value.(type) {
	case string:
		if slices.Contains(own, strings.ToLower(v)) {
			return v
		}
		return email.MaskText(v)
	case []any:
		for i := range v {
			v[i] = maskOthers(v[i], own)
		}
	case map[string]any:
		for name := range v {
			v[name] = maskOthers(v[name], own)
		}
	}
	return value
}
