// Package strictjson reads the JSON bodies of requests and explains everything that
// is wrong with one at once: unknown fields, doubled ones, values of the wrong type,
// each by its path. The handlers of package httpapi use it.
//
// Package jsontext decides what is JSON and what is not, three times as fast as
// encoding/json, which finds the words for what is not. The walk over the fields is done
// here, because encoding/json stops at the first wrong type, takes "TO" for "to", lets the
// last of two equal keys win and replaces broken Unicode without a word.
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

// Document is one JSON object in UTF-8, not yet looked into.
type Document struct {
	text string // valid JSON without space around it
}

// SyntaxError says why a body is not one JSON object.
type SyntaxError struct {
	reason string
}

func (e *SyntaxError) Error() string { return e.reason }

// Parse takes a body for what it must be: exactly one JSON object. A byte order mark in front
// of it is passed over, which RFC 8259 allows: Windows programs write one. Its error is a
// *SyntaxError.
func Parse(body []byte) (Document, error) {
	if bytes.HasPrefix(body, []byte("\xFF\xFE")) || bytes.HasPrefix(body, []byte("\xFE\xFF")) {
		return Document{}, &SyntaxError{reason: "the body is UTF-16: send UTF-8"}
	}
	body = bytes.TrimPrefix(body, []byte("\ufeff"))
	if !utf8.Valid(body) {
		return Document{}, &SyntaxError{reason: "the body is not valid UTF-8"}
	}
	// Doubled names and halves of surrogate pairs are told by their path, when the fields are read.
	if !jsontext.Value(body).IsValid(jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true)) {
		return Document{}, &SyntaxError{reason: whyInvalid(body)}
	}
	text := strings.Trim(string(body), space)
	if text[0] != '{' {
		return Document{}, &SyntaxError{reason: "the body must be a JSON object, not " + kindOf(text)}
	}
	return Document{text: text}, nil
}

// Has says whether the object has a field of this name.
func (d Document) Has(name string) bool {
	for literal := range members(d.text) {
		if found, err := unquote(literal); err == nil && found == name {
			return true
		}
	}
	return false
}

// whyInvalid asks encoding/json again, this time for the place.
func whyInvalid(body []byte) string {
	if strings.Trim(string(body), space) == "" {
		return "the body is empty"
	}
	var syntax *json.SyntaxError
	if err := json.Unmarshal(body, new(any)); errors.As(err, &syntax) {
		return fmt.Sprintf("%s (after byte %d)", syntax.Error(), syntax.Offset)
	}
	return "the body is not valid JSON"
}
