// Package strictjson decodes the JSON bodies of requests and reports all faults at once: unknown and
// duplicate fields and values of the wrong type, each with its path. The handlers below httpapi
// use it.
//
// Package jsontext validates the JSON, three times as fast as encoding/json, which is used only for the
// error message. The fields are decoded here, because encoding/json stops at the first wrong type,
// accepts "TO" for "to", uses the last of duplicate keys and silently replaces invalid Unicode.
package strictjson

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/go-json-experiment/json/jsontext"
)

// Document is a valid JSON object in UTF-8.
type Document struct {
	text string // valid JSON without space around it
}

// SyntaxError says why a body is not a JSON object.
type SyntaxError struct {
	reason string
	field  string // "" = unknown
	after  int64  // bytes before the error, with the one that is wrong; 0 = unknown
}

func (e *SyntaxError) Error() string {
	text := e.reason
	if e.field != "" {
		text += " in " + e.field
	}
	if e.after > 0 {
		text += fmt.Sprintf(" (after byte %d)", e.after)
	}
	return text
}

// WithoutPosition returns the error for a body of which the document was only a part.
func (e *SyntaxError) WithoutPosition() *SyntaxError { return &SyntaxError{reason: e.reason} }

// Parse accepts exactly one JSON object. It skips a byte order mark, as RFC 8259 allows: Windows
// programs write one. Its error is a *SyntaxError.
func Parse(body []byte) (Document, error) {
	text, err := validText(body)
	if err == nil && text[0] != '{' {
		err = &SyntaxError{reason: "the body must be a JSON object, not " + kindOf(text)}
	}
	if err != nil {
		return Document{}, err
	}
	return Document{text: text}, nil
}

// ParseField is Parse for a value outside of an object, such as a part of a form: it is the only field of the document. The name
// must need no escapes.
func ParseField(name string, value []byte) (Document, error) {
	text, err := validText(value)
	if err != nil {
		return Document{}, err
	}
	return Document{text: `{"` + name + `":` + text + `}`}, nil
}

// validText returns the JSON of a body without space around it. Its error is a *SyntaxError.
func validText(body []byte) (string, error) {
	if bytes.HasPrefix(body, []byte("\xFF\xFE")) || bytes.HasPrefix(body, []byte("\xFE\xFF")) {
		return "", &SyntaxError{reason: "the body is UTF-16: send UTF-8"}
	}
	body = bytes.TrimPrefix(body, []byte("\ufeff"))
	// Duplicate names and lone surrogates are reported with their path when the fields are read.
	valid := jsontext.Value(body).IsValid(jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true))
	switch {
	case !utf8.Valid(body):
		return "", invalidUTF8(body, valid)
	case !valid:
		return "", findSyntaxError(body)
	}
	return strings.Trim(string(body), space), nil
}

// Has reports whether the object has a field with this name.
func (d Document) Has(name string) bool {
	for literal := range members(d.text) {
		if found, err := unquote(literal); err == nil && found == name {
			return true
		}
	}
	return false
}

// invalidUTF8 says where the first byte is that is not UTF-8: clients send other character sets, often in one text of many.
func invalidUTF8(body []byte, isJSON bool) *SyntaxError {
	at := 0
	for {
		r, size := utf8.DecodeRune(body[at:])
		if r == utf8.RuneError && size <= 1 {
			break
		}
		at += size
	}
	e := &SyntaxError{reason: "the body is not valid UTF-8", after: int64(at) + 1}
	if isJSON { // strings of another text may be open
		e.field = fieldAt(string(body), at)
	}
	return e
}

// findSyntaxError uses encoding/json to find the position of the error.
func findSyntaxError(body []byte) *SyntaxError {
	if strings.Trim(string(body), space) == "" {
		return &SyntaxError{reason: "the body is empty"}
	}
	var syntax *json.SyntaxError
	if err := json.Unmarshal(body, new(any)); errors.As(err, &syntax) {
		return &SyntaxError{reason: syntax.Error(), after: syntax.Offset}
	}
	return &SyntaxError{reason: "the body is not valid JSON"}
}
