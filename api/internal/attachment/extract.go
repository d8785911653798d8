package attachment

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
)

// ErrDocumentTooLarge: without its contents, the document is larger than the limit.
var ErrDocumentTooLarge = errors.New("the document without its contents is too large")

const (
	// maxDepth is deeper than any valid request.
	maxDepth = 32
	// maxName is longer than the names that matter, with every character escaped (bytes).
	maxName = 64
)

// Limits of Extract.
type Limits struct {
	Document int // bytes of the document without its contents
	Contents int64
	Count    int // contents; further ones are not stored
}

// Extract reads the JSON document of a request and replaces each text at attachments[…].content by a short one that stands for
// the decoded content: see Contents.Find. Equal contents are replaced by equal texts, however they were written. From the
// first character that is not JSON on, it copies the rest: the parser reports it.
//
// The caller closes the contents, also after an error: ErrDocumentTooLarge, an error of r, or of the disk.
func Extract(r io.Reader, disk Disk, limits Limits) (document []byte, contents *Contents, err error) {
	e := &extractor{
		in: bufio.NewReaderSize(r, pieceBytes), disk: disk, limits: limits, left: limits.Contents, contents: &Contents{},
	}
	err = e.value(placeRoot, 0)
	if err == nil || errors.Is(err, errBroken) {
		err = e.copyRest()
	}
	if errors.Is(err, io.EOF) {
		err = nil
	}
	return e.out, e.contents, err
}

// place is where in the document a value is.
type place int

const (
	placeOther place = iota
	placeRoot
	placeList       // attachments
	placeAttachment // attachments[…]
	placeContent    // attachments[…].content
)

// child is the place of a field of an object.
func (p place) child(name string) place {
	switch {
	case p == placeRoot && name == "attachments":
		return placeList
	case p == placeAttachment && name == "content":
		return placeContent
	}
	return placeOther
}

type extractor struct {
	in       *bufio.Reader
	out      []byte
	disk     Disk
	limits   Limits
	left     int64
	contents *Contents
}

func (e *extractor) put(c ...byte) error {
	if len(e.out)+len(c) > e.limits.Document {
		return ErrDocumentTooLarge
	}
	e.out = append(e.out, c...)
	return nil
}

// next skips white space and returns the next character, which it has not copied.
func (e *extractor) next() (byte, error) {
	for {
		c, err := e.in.ReadByte()
		if err != nil {
			return 0, err
		}
		switch c {
		case ' ', '\t', '\n', '\r':
			continue
		case 0xEF, 0xBB, 0xBF: // a byte order mark, which the parser would skip
			if len(e.out) == 0 {
				continue
			}
		}
		return c, nil
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
	if c == '"' && at == placeContent {
		return e.content()
	}
	if err := e.put(c); err != nil {
		return err
	}
	switch {
	case depth > maxDepth:
		return errBroken
	case c == '"':
		_, err := e.text()
		return err
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
		if c == '}' && first {
			return e.put(c)
		}
		if err := e.put(c); err != nil {
			return err
		}
		if c != '"' {
			return errBroken
		}
		name, err := e.text()
		if err != nil {
			return err
		}
		if c, err = e.next(); err != nil {
			return err
		}
		if err := e.put(c); err != nil {
			return err
		}
		if c != ':' {
			return errBroken
		}
		if err := e.value(at.child(name), depth+1); err != nil {
			return err
		}
		if c, err = e.next(); err != nil {
			return err
		}
		if err := e.put(c); err != nil {
			return err
		}
		switch c {
		case '}':
			return nil
		case ',':
		default:
			return errBroken
		}
	}
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
		if c, err = e.next(); err != nil {
			return err
		}
		if err := e.put(c); err != nil {
			return err
		}
		switch c {
		case ']':
			return nil
		case ',':
		default:
			return errBroken
		}
	}
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

// content decodes a content and puts the text that stands for it.
func (e *extractor) content() error {
	stands, err := e.decode()
	if err != nil {
		return err
	}
	quoted, err := json.Marshal(stands)
	if err != nil {
		return fmt.Errorf("encode content: %w", err)
	}
	return e.put(quoted...)
}

func (e *extractor) decode() (string, error) {
	if len(e.contents.all) >= e.limits.Count { // too many are a fault of their own
		_, err := decodeString(e.in, newDecoder(io.Discard))
		return invalidPrefix + "is one of too many", err
	}
	one, err := newContent(e.disk, &e.left)
	if err != nil {
		return "", err
	}
	invalid, err := decodeString(e.in, newDecoder(one))
	switch {
	case err != nil:
		return "", errors.Join(err, one.Close())
	case errors.Is(invalid, ErrTooLarge):
		return tooLargePrefix + fmt.Sprintf("makes the attachments larger than %d bytes together", e.limits.Contents), one.Close()
	case invalid != nil:
		return invalidPrefix + invalid.Error(), one.Close()
	case one.size == 0:
		return invalidPrefix + "must not be empty", one.Close()
	}
	return e.contents.add(one), nil
}

// copyRest copies what is left.
func (e *extractor) copyRest() error {
	buffer := make([]byte, 4096)
	for {
		n, err := e.in.Read(buffer)
		if failed := e.put(buffer[:n]...); failed != nil {
			return failed
		}
		if err != nil {
			return err
		}
	}
}
