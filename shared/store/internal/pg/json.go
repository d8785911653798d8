package pg

import (
	"bytes"
	"encoding/json"
	"strings"
)

// Bounds of the JSON that is stored as it came. jsonb refuses numbers that numeric
// cannot hold and values nested so deep that its parser runs out of stack; what no
// program of ours would write need not be told apart exactly.
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

// isPlainJSON says whether jsonb takes the text. Besides the bounds it looks for
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

// WithoutNUL removes U+0000 from text that came from outside: text and jsonb
// columns would refuse it, and with it the news that the text is about.
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
