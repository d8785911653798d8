package strictjson

import (
	"cmp"
	"crypto/sha256"
	"errors"
	"fmt"
	"slices"
)

// maxDepth is deeper than any request goes. A document beyond it is refused for its
// fields anyway.
const maxDepth = 16

var errTooDeep = errors.New("nested too deep")

// SHA256 is the same for documents that say the same thing: the order of keys, the
// space between values and the way a character is escaped do not matter (RFC 8785).
// Numbers count as they are written: 5 and 5.0 differ.
func (d Document) SHA256() ([sha256.Size]byte, error) {
	canonical, err := appendCanonical(make([]byte, 0, len(d.text)), d.text, 0)
	if err != nil {
		return [sha256.Size]byte{}, fmt.Errorf("canonical JSON: %w", err)
	}
	return sha256.Sum256(canonical), nil
}

func appendCanonical(to []byte, value string, depth int) ([]byte, error) {
	if depth > maxDepth {
		return nil, errTooDeep
	}
	switch value[0] {
	case '"':
		text, err := unquote(value)
		if err != nil {
			return nil, err
		}
		return appendQuoted(to, text), nil
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
	type member struct{ key, value string }
	var sorted []member
	for literal, value := range members(object) {
		key, err := unquote(literal)
		if err != nil {
			return nil, err
		}
		sorted = append(sorted, member{key, value})
	}
	slices.SortStableFunc(sorted, func(a, b member) int { return cmp.Compare(a.key, b.key) })
	to = append(to, '{')
	for i, m := range sorted {
		if i > 0 {
			to = append(to, ',')
		}
		to = append(appendQuoted(to, m.key), ':')
		var err error
		if to, err = appendCanonical(to, m.value, depth+1); err != nil {
			return nil, err
		}
	}
	return append(to, '}'), nil
}

// appendQuoted escapes what must be escaped, always in the same way.
func appendQuoted(to []byte, text string) []byte {
	to = append(to, '"')
	begin := 0
	for i := range len(text) {
		c := text[i]
		if c >= ' ' && c != '"' && c != '\\' {
			continue
		}
		to = append(to, text[begin:i]...)
		if begin = i + 1; c < ' ' {
			to = fmt.Appendf(to, `\u%04x`, c)
		} else {
			to = append(to, '\\', c)
		}
	}
	return append(append(to, text[begin:]...), '"')
}
