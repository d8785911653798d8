package pg

import (
	"bytes"
	"encoding/json"
	"strings"
)

// Limits of JSON that is stored unchanged. jsonb refuses numbers that numeric
// cannot represent and values nested so deep that its parser runs out of stack; the limits
// are narrower, since no program of ours writes such JSON.
const (
	plainDepth  = 100
	plainNumber = 100 // characters
)

// JSON is the bytes as a jsonb column takes them: themselves when they are plain
// JSON, a JSON string of them otherwise. jsonb cannot hold U+0000, so it is dropped.
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

// isPlainJSON reports whether jsonb accepts the text. Besides the limits it checks for
// escaped halves of surrogate pairs, which decode to U+FFFD, and for U+0000.
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

// WithoutNUL removes U+0000 from text of external origin: text and jsonb
// columns would refuse it, and the whole record with it.
func WithoutNUL(s string) string {
	return strings.ToValidUTF8(strings.ReplaceAll(s, "\x00", ""), "\uFFFD")
}

// WithoutEscapedNUL does the same to encoded JSON, in which U+0000 is the escape
// \u0000, unless its backslash is itself escaped.
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
