package store

import (
	"encoding/json"
	"strings"
)

// asJSON is the bytes as a jsonb column takes them: themselves when they are JSON,
// a JSON string of them otherwise. jsonb cannot hold U+0000, so it is dropped.
func asJSON(raw []byte) string {
	text := strings.ToValidUTF8(string(raw), "\uFFFD")
	if json.Valid([]byte(text)) && !strings.Contains(text, `\u0000`) {
		return text
	}
	quoted, err := json.Marshal(strings.ReplaceAll(text, "\x00", ""))
	if err != nil {
		return `""`
	}
	return strings.ReplaceAll(string(quoted), `\u0000`, "")
}
