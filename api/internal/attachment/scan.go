package attachment

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"strings"
	"unicode/utf8"
)

// document copies the only value of the input. It never returns nil: the error is io.EOF after the last character, and
// errBroken at the first one with which the JSON is invalid.
func (e *extractor) document() error {
	head, err := e.in.Peek(3)
	switch {
	case err != nil && !errors.Is(err, io.EOF):
		return err
	case bytes.Equal(head, []byte("\ufeff")): // a byte order mark, which the parser would skip
		if _, err := e.in.Discard(len(head)); err != nil {
			return err
		}
	case bytes.HasPrefix(head, []byte("\xFF\xFE")), bytes.HasPrefix(head, []byte("\xFE\xFF")): // UTF-16, which the parser reports
		return errors.Join(e.put(head[:2]...), errBroken)
	}
	if err := e.value(placeRoot, 0); err != nil {
		return err
	}
	// White space behind the value counts toward the document's size: a body that consists of it is too large.
	for {
		c, err := e.in.ReadByte()
		if err != nil {
			return err
		}
		if !isSpace(c) {
			return e.broken(c)
		}
		if err := e.put(c); err != nil {
			return err
		}
	}
}

func isSpace(c byte) bool { return c == ' ' || c == '\t' || c == '\n' || c == '\r' }

// broken copies a character with which the JSON is invalid. The space separates it from the character before, with which it could
// be another valid value.
func (e *extractor) broken(c byte) error {
	if err := e.put(' ', c); err != nil {
		return err
	}
	for c >= utf8.RuneSelf {
		next, err := e.in.ReadByte()
		if err != nil {
			return err
		}
		if utf8.RuneStart(next) {
			break
		}
		if err := e.put(next); err != nil {
			return err
		}
	}
	return errBroken
}

// next skips white space and returns the next character, which it has not copied.
func (e *extractor) next() (byte, error) {
	for {
		c, err := e.in.ReadByte()
		if err != nil {
			return 0, err
		}
		if !isSpace(c) {
			return c, nil
		}
	}
}

func (e *extractor) value(at place, depth int) error {
	c, err := e.next()
	if err != nil {
		return err
	}
	return e.valueFrom(c, at, depth)
}

func (e *extractor) valueFrom(c byte, at place, depth int) error {
	switch {
	case c == '"' && at == placeContent:
		return e.content()
	case !strings.ContainsRune("\"{[-0123456789tfn", rune(c)):
		return e.broken(c)
	}
	if err := e.put(c); err != nil {
		return err
	}
	switch {
	case c == '"':
		_, err := e.text()
		return err
	case depth > maxDepth && (c == '{' || c == '['):
		return e.nested()
	case c == '{':
		return e.object(at, depth)
	case c == '[':
		return e.list(at, depth)
	}
	// A number, true, false or null; anything else is the parser's.
	for {
		next, err := e.in.ReadByte()
		if err != nil {
			return err
		}
		switch next {
		case ',', '}', ']', ' ', '\t', '\n', '\r':
			return e.in.UnreadByte()
		}
		if err := e.put(next); err != nil {
			return err
		}
	}
}

func (e *extractor) object(at place, depth int) error {
	for first := true; ; first = false {
		c, err := e.next()
		if err != nil {
			return err
		}
		switch {
		case c == '}' && first:
			return e.put(c)
		case c != '"':
			return e.broken(c)
		}
		if err := e.put(c); err != nil {
			return err
		}
		name, err := e.text()
		if err != nil {
			return err
		}
		if c, err = e.next(); err != nil {
			return err
		}
		if c != ':' {
			return e.broken(c)
		}
		if err := e.put(c); err != nil {
			return err
		}
		if err := e.value(at.child(name), depth+1); err != nil {
			return err
		}
		if more, err := e.another('}'); err != nil || !more {
			return err
		}
	}
}

// another copies what follows an element: a comma, if there is another one, or the end of the object or array.
func (e *extractor) another(end byte) (more bool, err error) {
	c, err := e.next()
	if err != nil {
		return false, err
	}
	if c != ',' && c != end {
		return false, e.broken(c)
	}
	return c == ',', e.put(c)
}

func (e *extractor) list(at place, depth int) error {
	element := placeOther
	if at == placeList {
		element = placeAttachment
	}
	for first := true; ; first = false {
		c, err := e.next()
		if err != nil {
			return err
		}
		if c == ']' && first {
			return e.put(c)
		}
		if err := e.valueFrom(c, element, depth+1); err != nil {
			return err
		}
		if more, err := e.another(']'); err != nil || !more {
			return err
		}
	}
}

// nested copies the rest of an object or array. It does not recurse, because the client chooses the depth.
func (e *extractor) nested() error {
	for depth := 1; depth > 0; {
		c, err := e.in.ReadByte()
		if err != nil {
			return err
		}
		if err := e.put(c); err != nil {
			return err
		}
		switch c {
		case '"':
			if _, err := e.text(); err != nil {
				return err
			}
		case '{', '[':
			depth++
		case '}', ']':
			depth--
		}
	}
	return nil
}

// text copies the rest of a string and returns its value if it is short.
func (e *extractor) text() (string, error) {
	begin := len(e.out)
	for {
		c, err := e.in.ReadByte()
		if err != nil {
			return "", err
		}
		if err := e.put(c); err != nil {
			return "", err
		}
		switch c {
		case '\\':
			if c, err = e.in.ReadByte(); err != nil {
				return "", err
			}
			if err := e.put(c); err != nil {
				return "", err
			}
		case '"':
			if len(e.out)-begin > 6*maxName {
				return "", nil
			}
			var value string
			if json.Unmarshal(e.out[begin-1:], &value) != nil {
				return "", nil // the parser reports it
			}
			return value, nil
		}
	}
}
