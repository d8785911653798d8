package mailing

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"mime/multipart"
	"slices"
	"strings"
	"unicode/utf8"

	"email-gateway/api/internal/fieldhint"
	"email-gateway/api/internal/strictjson"
	"email-gateway/shared/email"
	"email-gateway/shared/rules"
)

// Names of the form's parts.
const (
	PartFile      = "file"
	PartSubject   = "subject"
	PartHTML      = "html"
	PartText      = "text"
	PartAutoText  = "autoText"
	PartTemplate  = "template"
	PartLocale    = "templateLocale"
	PartVersion   = "templateVersion"
	PartName      = "name"
	PartFrom      = "from"
	PartReplyTo   = "replyTo"
	PartSendAt    = "sendAt"
	PartTags      = "tags"
	PartDelivery  = "delivery"
	PartDryRun    = "dryRun"
	PartTest      = "test"
	PartStart     = "start"
	PartEncoding  = "encoding"
	PartDelimiter = "delimiter"
	PartEmpty     = "emptyFields"
	PartAttach    = "attachments"
)

// part describes how a form part is read.
type part struct {
	maxBytes int
	list     bool // may be repeated, and holds several values with commas between them
	verbatim bool // space around the value is part of it
	control  bool // it selects what happens, so a blank one is refused: without it, a mailing would be sent at once, for real
}

// partOf returns the description of a part other than the file.
func partOf(name string) (part, bool) {
	switch name {
	case PartHTML, PartText:
		return part{maxBytes: maxBody, verbatim: true}, true
	case PartSubject, PartFrom:
		return part{maxBytes: maxSubject}, true
	case PartAttach:
		return part{maxBytes: maxAttachments, verbatim: true}, true
	case PartTags:
		return part{maxBytes: maxSubject, list: true}, true
	case PartTest:
		return part{maxBytes: maxSubject, list: true, control: true}, true
	case PartName, PartReplyTo:
		return part{maxBytes: MaxName * utf8.UTFMax}, true
	case PartSendAt, PartAutoText, PartLocale, PartVersion, PartDelivery, PartDryRun, PartStart, PartEmpty:
		return part{maxBytes: 64, control: true}, true
	case PartTemplate, PartEncoding, PartDelimiter:
		return part{maxBytes: 64}, true // a template's name is that long
	}
	return part{}, false
}

// formParts lists the parts for messages about unknown ones.
var formParts = fieldhint.Request{Noun: "part", Known: []string{
	PartFile, PartSubject, PartHTML, PartText, PartTemplate, PartLocale, PartVersion, PartAutoText, PartName, PartFrom, PartReplyTo, PartSendAt, PartTags, PartDelivery, PartDryRun, PartTest, PartStart,
	PartEncoding, PartDelimiter, PartEmpty, PartAttach,
}}

// maxAttachments has room for ten attachments with the longest names, escaped (bytes).
const maxAttachments = 64 << 10

// maxParts is more than any valid form has, with every list written as single parts.
const maxParts = 64

// CodeEncodedPart: the content of a part is encoded, for example in base64.
const CodeEncodedPart = "ENCODED_PART"

// ErrMalformed: the body is not a multipart form, or has more than 64 parts.
var ErrMalformed = errors.New("is not a multipart/form-data body, or has too many parts")

// Form holds the values of a form. A blank part counts as missing, or is a fault.
type Form struct {
	Values   map[string]string
	Lists    map[string][]string
	HasFile  bool
	Filename string // of the file part; "" = none
	Faults   []rules.Fault

	seen map[string]bool // parts present, including empty ones
}

// ReadForm reads all parts in order. It passes the file's content to takeFile, which must read it
// to its end. The error is ErrMalformed, or that of takeFile. A form without its closing boundary is malformed: parts may be
// missing, such as the one that says not to start.
func ReadForm(body io.Reader, boundary string, takeFile func(content io.Reader) error) (Form, error) {
	// multipart.Reader also returns io.EOF for a body that ends behind a boundary or inside a part's header, and accepts a
	// closing boundary without a line end.
	buffered, lineEnd := bufio.NewReader(body), "\r\n"
	first := "--" + boundary + "\n"
	if begin, _ := buffered.Peek(len(first)); string(begin) == first { // a later Read returns the error
		lineEnd = "\n"
	}
	parts := multipart.NewReader(io.MultiReader(buffered, strings.NewReader(lineEnd), unexpectedEOF{}), boundary)
	f := Form{Values: map[string]string{}, Lists: map[string][]string{}, seen: map[string]bool{}}
	for n := 0; ; n++ {
		p, err := parts.NextPart()
		switch {
		case errors.Is(err, io.EOF) && n > 0:
			return f, nil
		case err != nil:
			return f, fmt.Errorf("%w: %w", ErrMalformed, err)
		case n == maxParts:
			return f, ErrMalformed
		}
		switch name := p.FormName(); {
		case isEncoded(p):
			f.refuseEncoded(name)
		case name == PartFile:
			err = f.readFile(p, takeFile)
		default:
			err = f.readValue(name, p)
		}
		if err != nil {
			return f, err
		}
	}
}

// isEncoded reports whether the content of a part would have to be decoded, as mail libraries write forms. multipart.Reader
// decodes quoted-printable and removes the header.
func isEncoded(p *multipart.Part) bool {
	for _, encoding := range p.Header.Values("Content-Transfer-Encoding") {
		switch strings.ToLower(strings.TrimSpace(encoding)) {
		case "", "7bit", "8bit", "binary":
		default:
			return true
		}
	}
	return false
}

// refuseEncoded adds the fault of an encoded part, whose content is skipped.
func (f *Form) refuseEncoded(name string) {
	if name == PartFile {
		f.HasFile = true
	} else if _, ok := partOf(name); !ok {
		name = shortName(name)
	}
	f.fault(name, CodeEncodedPart, "must have no Content-Transfer-Encoding but 7bit, 8bit, binary or quoted-printable: send its bytes as they are")
}

// unexpectedEOF follows a body: a form without a closing boundary ends with io.ErrUnexpectedEOF.
type unexpectedEOF struct{}

func (unexpectedEOF) Read([]byte) (int, error) { return 0, io.ErrUnexpectedEOF }

func (f *Form) readFile(p *multipart.Part, takeFile func(io.Reader) error) error {
	if f.HasFile {
		f.fault(PartFile, rules.CodeDuplicateField, "appears twice")
		return nil // NextPart skips the unread content
	}
	f.HasFile = true
	if f.Filename = trimmed(lastPart(p.FileName())); email.IsBlank(f.Filename) {
		f.Filename = ""
	}
	return takeFile(completePart{p})
}

// completePart reads a part; a truncated part makes the form malformed.
type completePart struct{ part io.Reader }

func (u completePart) Read(p []byte) (int, error) {
	n, err := u.part.Read(p)
	if err != nil && !errors.Is(err, io.EOF) {
		err = fmt.Errorf("%w: %w", ErrMalformed, err)
	}
	return n, err
}

// lastPart removes the folders that some Windows programs put before a file name.
func lastPart(name string) string { return name[strings.LastIndexByte(name, '\\')+1:] }

func (f *Form) readValue(name string, p *multipart.Part) error {
	known, ok := partOf(name)
	if !ok {
		f.fault(shortName(name), strictjson.CodeUnknownField, formParts.Unknown("", name))
		return nil
	}
	text, err := io.ReadAll(io.LimitReader(p, int64(known.maxBytes)+1))
	if err != nil {
		return fmt.Errorf("%w: %w", ErrMalformed, err)
	}
	value := strings.TrimLeft(string(text), "\ufeff") // byte order mark of a file used as value
	if !known.verbatim {
		value = trimmed(value)
	}
	twice := f.seen[name] && !known.list
	f.seen[name] = true
	switch {
	case twice:
		f.fault(name, rules.CodeDuplicateField, "appears twice")
	case len(text) > known.maxBytes:
		f.fault(name, CodeTooLong, fmt.Sprintf("must be at most %d bytes of UTF-8", known.maxBytes))
	case !utf8.ValidString(value):
		f.fault(name, rules.CodeBadCharacter, "must be UTF-8")
	case strings.Contains(value, "\x00"):
		f.fault(name, rules.CodeBadCharacter, "contains the character U+0000")
	case email.IsBlank(value):
		if known.control {
			f.fault(name, rules.CodeRequired, rules.LeaveOut)
		}
	case known.list:
		for word := range strings.SplitSeq(value, ",") {
			if word = trimmed(word); !email.IsBlank(word) {
				f.Lists[name] = append(f.Lists[name], word)
			}
		}
	default:
		f.Values[name] = value
	}
	return nil
}

// trimmed removes invisible characters around a value.
func trimmed(value string) string { return strings.TrimFunc(value, email.IsInvisible) }

func (f *Form) fault(field, code, message string) {
	known := slices.ContainsFunc(f.Faults, func(other rules.Fault) bool { return other.Field == field })
	if !known && len(f.Faults) < rules.MaxFaults {
		f.Faults = append(f.Faults, rules.Fault{Field: field, Code: code, Message: message})
	}
}

// shortName limits a name chosen by the client in messages.
func shortName(name string) string {
	const longest = 64
	if name == "" || len(name) > longest || !utf8.ValidString(name) || email.HasControl(name) {
		return "(unnamed)"
	}
	return name
}
