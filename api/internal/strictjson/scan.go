package strictjson

import (
	"errors"
	"iter"
	"strings"
	"unicode/utf16"
)

// The functions of this file scan text that is known to be valid JSON: they find ends, not mistakes.

const space = " \t\r\n"

// members yields the quoted keys of an object with their values.
func members(object string) iter.Seq2[string, string] {
	return func(yield func(key, value string) bool) {
		i := skipSpace(object, 1)
		for object[i] != '}' {
			key := object[i:skipString(object, i)]
			i = skipSpace(object, i+len(key))
			i = skipSpace(object, i+1) // the colon
			value := object[i:skipValue(object, i)]
			if !yield(key, value) {
				return
			}
			if i = skipSpace(object, i+len(value)); object[i] == ',' {
				i = skipSpace(object, i+1)
			}
		}
	}
}

// elements yields the values of an array with their indexes.
func elements(array string) iter.Seq2[int, string] {
	return func(yield func(n int, value string) bool) {
		i := skipSpace(array, 1)
		for n := 0; array[i] != ']'; n++ {
			value := array[i:skipValue(array, i)]
			if !yield(n, value) {
				return
			}
			if i = skipSpace(array, i+len(value)); array[i] == ',' {
				i = skipSpace(array, i+1)
			}
		}
	}
}

func skipSpace(text string, i int) int {
	for text[i] == ' ' || text[i] == '\n' || text[i] == '\t' || text[i] == '\r' {
		i++
	}
	return i
}

func skipString(text string, i int) int {
	for i++; text[i] != '"'; i++ {
		if text[i] == '\\' {
			i++
		}
	}
	return i + 1
}

func skipValue(text string, i int) int {
	switch text[i] {
	case '"':
		return skipString(text, i)
	case '{', '[':
		return skipNested(text, i)
	}
	if end := strings.IndexAny(text[i:], ",]}"+space); end >= 0 {
		return i + end
	}
	return len(text)
}

// skipNested counts brackets instead of recursing, because the client chooses the depth.
func skipNested(text string, i int) int {
	for depth := 0; ; {
		switch text[i] {
		case '"':
			i = skipString(text, i)
			continue
		case '{', '[':
			depth++
		case '}', ']':
			if depth--; depth == 0 {
				return i + 1
			}
		}
		i++
	}
}

// kindOf names a value's type in messages.
func kindOf(value string) string {
	switch value[0] {
	case '{':
		return "an object"
	case '[':
		return "an array"
	case '"':
		return "a string"
	case 't', 'f':
		return "a boolean"
	case 'n':
		return "null"
	default:
		return "a number"
	}
}

var errSurrogate = errors.New("contains half of a surrogate pair (\\ud800 to \\udfff)")

// unquote decodes a string literal. A lone surrogate is an error; it is not replaced.
func unquote(literal string) (string, error) {
	text := literal[1 : len(literal)-1]
	escape := strings.IndexByte(text, '\\')
	if escape < 0 {
		return text, nil
	}
	var b strings.Builder
	b.Grow(len(text))
	for ; escape >= 0; escape = strings.IndexByte(text, '\\') {
		b.WriteString(text[:escape])
		r, n := unescape(text[escape:])
		if utf16.IsSurrogate(r) {
			return "", errSurrogate
		}
		b.WriteRune(r)
		text = text[escape+n:]
	}
	b.WriteString(text)
	return b.String(), nil
}

var errNUL = errors.New("contains the character U+0000")

// storable decodes a string. U+0000 is an error in every field, because Postgres cannot store it.
func storable(literal string) (string, error) {
	decoded, err := unquote(literal)
	switch {
	case err != nil:
		return "", err
	case strings.IndexByte(decoded, 0) >= 0:
		return "", errNUL
	}
	return decoded, nil
}

// unescape decodes the escape at the beginning of text and returns its length. A surrogate pair is one
// character.
func unescape(text string) (rune, int) {
	switch text[1] {
	case 'u':
		r := hexRune(text[2:6])
		if utf16.IsSurrogate(r) && strings.HasPrefix(text[6:], `\u`) {
			if pair := utf16.DecodeRune(r, hexRune(text[8:12])); pair != '\uFFFD' {
				return pair, 12
			}
		}
		return r, 6
	case 'b':
		return '\b', 2
	case 'f':
		return '\f', 2
	case 'n':
		return '\n', 2
	case 'r':
		return '\r', 2
	case 't':
		return '\t', 2
	default: // a quote, a backslash or a slash stands for itself
		return rune(text[1]), 2
	}
}

// hexRune reads four hex digits.
func hexRune(digits string) rune {
	var r rune
	for i := range len(digits) {
		digit := rune(digits[i]) | 0x20 // letters to lower case; digits have the bit already
		if digit >= 'a' {
			digit -= 'a' - '0' - 10
		}
		r = r<<4 | (digit - '0')
	}
	return r
}
