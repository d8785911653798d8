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
	// maxDepth is deeper than any valid request. Deeper values are copied without parsing.
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

// Extract reads the JSON document of a request and replaces each text at attachments[…].content by a short placeholder
// for the decoded content: see Contents.Find. Equal contents are replaced by equal texts, however they were
// written. White space between values is left out. The document ends at the first character with which the JSON is
// invalid, so that strictjson.Parse reports it.
//
// The caller closes the contents, also after an error: ErrDocumentTooLarge, an error of r, or of the disk.
func Extract(r io.Reader, disk Disk, limits Limits) (document []byte, contents *Contents, err error) {
	e := &extractor{
		in: bufio.NewReaderSize(r, pieceBytes), disk: disk, limits: limits, left: limits.Contents, contents: &Contents{},
	}
	err = e.document()
	if errors.Is(err, errBroken) || errors.Is(err, io.EOF) {
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

// content decodes a content and puts the text that stands for it.
func (e *extractor) content() error {
	placeholder, err := e.decode()
	if invalid, ok := errors.AsType[*brokenString](err); ok {
		return errors.Join(err, e.put(append([]byte{'"'}, invalid.read...)...))
	}
	if err != nil {
		return err
	}
	quoted, err := json.Marshal(placeholder)
	if err != nil {
		return fmt.Errorf("encode content: %w", err)
	}
	return e.put(quoted...)
}

func (e *extractor) decode() (string, error) {
	if len(e.contents.all) >= e.limits.Count { // too many are a fault of their own
		_, err := decodeString(e.in, newDecoder(io.Discard))
		return invalidPrefix + "exceeds the maximum number of attachments", err
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
