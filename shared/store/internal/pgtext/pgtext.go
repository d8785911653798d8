// Package pgtext makes text and JSON of external origin acceptable for columns of the types text and jsonb, which refuse
// U+0000, and jsonb more than that.
package pgtext

import (
	"bytes"
	"encoding/json"
	"strings"
)

// Limits of JSON that is stored unchanged. jsonb refuses numbers that numeric cannot represent, and values nested so
// deeply that its parser runs out of stack. The limits are narrower, since this system writes no such JSON.
const (
	plainDepth  = 100
	plainNumber = 100 // characters
)

// JSON returns raw for a jsonb column: unchanged if it is plain JSON, otherwise as a JSON string. It drops U+0000,
// which jsonb cannot hold.
func JSON(raw []byte) string {
	text := strings.ToValidUTF8(string(raw), "\uFFFD")
	if isPlainJSON(text) {
		return text
	}
	quoted, err := json.Marshal(strings.ReplaceAll(text, "\x00", ""))
	if err != nil {
		return `""`
	}
	return string(quoted)
}

// isPlainJSON reports whether jsonb accepts the text. Besides the limits it checks for U+0000 and for escaped halves of
// surrogate pairs, which decode to U+FFFD.
func isPlainJSON(text string) bool {
	if !json.Valid([]byte(text)) {
		return false
	}
	decoder := json.NewDecoder(strings.NewReader(text))
	decoder.UseNumber()
	for depth := 0; ; {
		token, err := decoder.Token()
		if err != nil {
			return true // the end: the text is valid
		}
		switch token := token.(type) {
		case json.Delim:
			depth++
			if token == '}' || token == ']' {
				depth -= 2
			}
		case json.Number:
			if len(token) > plainNumber || strings.ContainsAny(token.String(), "eE") {
				return false
			}
		case string:
			if strings.ContainsAny(token, "\x00\uFFFD") {
				return false
			}
		}
		if depth > plainDepth {
			return false
		}
	}
}

// WithoutNUL removes U+0000 from text of external origin, and replaces invalid UTF-8: text and jsonb columns would
// refuse the whole record.
func WithoutNUL(s string) string {
	return strings.ToValidUTF8(strings.ReplaceAll(s, "\x00", ""), "\uFFFD")
}

// WithoutEscapedNUL removes U+0000 from encoded JSON, where it is the escape \u0000 unless its backslash is itself
// escaped.
func WithoutEscapedNUL(encoded []byte) []byte {
	nul := []byte(`\u0000`)
	if !bytes.Contains(encoded, nul) {
		return encoded
	}
	var clean []byte
	for len(encoded) > 0 {
		switch {
		case bytes.HasPrefix(encoded, nul):
			encoded = encoded[len(nul):]
		case encoded[0] == '\\':
			clean, encoded = append(clean, encoded[:2]...), encoded[2:]
		default:
			clean, encoded = append(clean, encoded[0]), encoded[1:]
		}
	}
	return clean
}
