// Package attachment receives and stores the contents of attachments. Extract takes base64 contents out of the JSON body of a
// request while it is read, so that none of them is in memory as a whole; Library stores contents, encrypted, in the blob
// store, once per company; CheckType compares a content with the type that its sender says it has.
package attachment

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"strings"

	"golang.org/x/text/encoding"
	"golang.org/x/text/transform"

	"email-gateway/api/internal/spool"
)

// headBytes is how much of a content is kept in memory to detect its type: what mimetype reads.
const headBytes = 3072

// ErrTooLarge: the contents of a request are together larger than the limit.
var ErrTooLarge = errors.New("larger than the limit of attachments")

// Disk creates files for contents and accounts for their size.
type Disk interface {
	Create() (*spool.File, error)
	// Reserve accounts for n bytes about to be written.
	Reserve(n int64) error
}

// Content is a received content, on disk.
type Content struct {
	file *spool.File
	disk Disk
	sum  hash.Hash
	head []byte
	size int64
	// text is closed without an error if the content is UTF-8. nil = it is not.
	text *transform.Writer
	// left is how much of the limit is left, shared by all contents of a request. nil = unlimited.
	left *int64
}

// newContent creates an empty content.
func newContent(disk Disk, left *int64) (*Content, error) {
	file, err := disk.Create()
	if err != nil {
		return nil, err
	}
	text := transform.NewWriter(io.Discard, encoding.UTF8Validator)
	return &Content{file: file, disk: disk, sum: sha256.New(), left: left, text: text}, nil
}

// Receive reads a content of at most the given size. The error is ErrTooLarge, that of r, or that of the disk.
func Receive(r io.Reader, disk Disk, limit int64) (*Content, error) {
	c, err := newContent(disk, &limit)
	if err != nil {
		return nil, err
	}
	if _, err := io.CopyBuffer(onlyWriter{c}, r, make([]byte, pieceBytes)); err != nil {
		return nil, errors.Join(err, c.Close())
	}
	return c, nil
}

// onlyWriter hides other methods from io.Copy.
type onlyWriter struct{ io.Writer }

// Write appends to the content.
func (c *Content) Write(p []byte) (int, error) {
	if c.left != nil {
		if *c.left -= int64(len(p)); *c.left < 0 {
			return 0, ErrTooLarge
		}
	}
	if err := c.disk.Reserve(int64(len(p))); err != nil {
		return 0, err
	}
	if room := headBytes - len(c.head); room > 0 {
		c.head = append(c.head, p[:min(room, len(p))]...)
	}
	if c.text != nil {
		if _, err := c.text.Write(p); err != nil {
			c.text = nil
		}
	}
	c.sum.Write(p)
	n, err := c.file.Write(p)
	c.size += int64(n)
	if err != nil {
		return n, fmt.Errorf("receive content: %w", err)
	}
	return n, nil
}

// Size is the number of bytes.
func (c *Content) Size() int64 { return c.size }

// SHA256 is the hash of the content.
func (c *Content) SHA256() []byte { return c.sum.Sum(nil) }

// MediaType is the type that the content looks like. It has no charset if the beginning alone is UTF-8, as in a text in
// ISO-8859-1 whose first accent is far behind.
func (c *Content) MediaType() string {
	detected := Detect(c.head)
	media, charset, _ := strings.Cut(detected, "; charset=")
	if strings.EqualFold(charset, "utf-8") && (c.text == nil || c.text.Close() != nil) {
		return media
	}
	return detected
}

// Close frees the disk space.
func (c *Content) Close() error { return c.file.Close() }

// Contents are the contents of a request, by the text that stands for each in the reduced document.
type Contents struct {
	byText map[string]*Content
	all    []*Content
}

// Find returns the content that a text of the reduced document stands for. If the text in the request was not a content, it
// returns the reason, and whether that is the size.
func (c *Contents) Find(text string) (found *Content, tooLarge bool, reason string) {
	if c != nil {
		if found := c.byText[text]; found != nil {
			return found, false, ""
		}
	}
	if reason, invalid := strings.CutPrefix(text, invalidPrefix); invalid {
		return nil, false, reason
	}
	if reason, large := strings.CutPrefix(text, tooLargePrefix); large {
		return nil, true, reason
	}
	return nil, false, "must be base64"
}

const (
	contentPrefix  = "sha256:"
	invalidPrefix  = "invalid:"
	tooLargePrefix = "too large:"
)

// add keeps a content and returns the text that stands for it: equal contents have equal texts.
func (c *Contents) add(one *Content) string {
	text := contentPrefix + hex.EncodeToString(one.SHA256())
	if c.byText == nil {
		c.byText = map[string]*Content{}
	}
	if c.byText[text] == nil {
		c.byText[text] = one
	}
	c.all = append(c.all, one)
	return text
}

// Close frees the disk space of all contents.
func (c *Contents) Close() {
	if c == nil {
		return
	}
	for _, one := range c.all {
		_ = one.Close() // unlinked: closing it frees the space
	}
	c.all, c.byText = nil, nil
}
