package strictjson

import (
	"cmp"
	"crypto/sha256"
	"errors"
	"fmt"
	"slices"
	"strings"
	"unicode/utf16"
	"unicode/utf8"
)

// A document that exceeds these limits has no canonical form: it is rejected for its fields anyway.
const (
	maxDepth = 16
	// maxMembers limits the fields of an object, which are sorted in memory. The data of a template has up to 20,000 values.
	maxMembers = 32 << 10
)

var (
	errTooDeep = errors.New("nested too deep")
	errTooMany = errors.New("an object has too many fields")
)

// SHA256 is equal for equivalent documents: the order of keys, whitespace and escapes do not matter
// (RFC 8785). Numbers are compared as written: 5 and 5.0 differ.
func (d Document) SHA256() ([sha256.Size]byte, error) {
	canonical, err := appendCanonical(make([]byte, 0, len(d.text)), d.text, 0)
	if err != nil {
		return [sha256.Size]byte{}, fmt.Errorf("canonical JSON: %w", err)
	}
	return sha256.Sum256(canonical), nil
}

// SHA256AsWritten is for documents without a canonical form: whitespace and the order of keys matter.
func (d Document) SHA256AsWritten() [sha256.Size]byte { return sha256.Sum256([]byte(d.text)) }

func appendCanonical(to []byte, value string, depth int) ([]byte, error) {
	if depth > maxDepth {
		return nil, errTooDeep
	}
	switch value[0] {
	case '"':
		return appendString(to, value)
	case '{':
		return appendObject(to, value, depth)
	case '[':
		to = append(to, '[')
		for n, element := range elements(value) {
			if n > 0 {
				to = append(to, ',')
			}
			var err error
			if to, err = appendCanonical(to, element, depth+1); err != nil {
				return nil, err
			}
		}
		return append(to, ']'), nil
	default:
		return append(to, value...), nil
	}
}

func appendObject(to []byte, object string, depth int) ([]byte, error) {
	type member struct{ key, literal, value string }
	var sorted []member
	for literal, value := range members(object) {
		key, err := unquote(literal)
		if err != nil {
			return nil, err
		}
		if len(sorted) == maxMembers {
			return nil, errTooMany
		}
		sorted = append(sorted, member{key, literal, value})
	}
	slices.SortStableFunc(sorted, func(a, b member) int { return cmp.Compare(a.key, b.key) })
	to = append(to, '{')
	for i, m := range sorted {
		if i > 0 {
			to = append(to, ',')
		}
		var err error
		if to, err = appendString(to, m.literal); err != nil {
			return nil, err
		}
		if to, err = appendCanonical(append(to, ':'), m.value, depth+1); err != nil {
			return nil, err
		}
	}
	return append(to, '}'), nil
}

// appendString copies a string literal with its escapes in canonical form. Unescaped characters need
// no escape.
func appendString(to []byte, literal string) ([]byte, error) {
	text := literal[1 : len(literal)-1]
	to = append(to, '"')
	for escape := strings.IndexByte(text, '\\'); escape >= 0; escape = strings.IndexByte(text, '\\') {
		r, n := unescape(text[escape:])
		if utf16.IsSurrogate(r) {
			return nil, errSurrogate
		}
		to = append(to, text[:escape]...)
		switch {
		case r == '"' || r == '\\':
			to = append(to, '\\', byte(r))
		case r < ' ':
			to = fmt.Appendf(to, `\u%04x`, r)
		default:
			to = utf8.AppendRune(to, r)
		}
		text = text[escape+n:]
	}
	return append(append(to, text...), '"'), nil
}
