// Package mailmerge fills the {{fields}} of a mailing's subject, HTML and text
// with the values of one recipient. It knows no logic: no conditions, no loops,
// no expressions.
//
// A field is written {{name}} or {{ name }}. The name holds 1 to 100 letters of
// any language, digits, spaces, currency signs and other signs of column names
// such as "Desconto (%)", and is compared as written. A literal {{ is written
// \{{, and a backslash before a field \\{{name}}.
// {{name|text}} has a text for the case that the value is empty, of up to 200
// characters; it is escaped and checked as a value is.
//
// A template has at most 10,000 fields.
//
// In HTML a field may be in text, in the title and in a quoted attribute. A
// value is escaped for its place, so it can never become markup:
//
//   - In text, the title and ordinary attributes its characters stay as they
//     are, written as character references where needed.
//   - At the very start of an attribute that holds an address (href, src …) the
//     value is the address. It must begin with https://, http://, mailto: or
//     tel: and is otherwise kept as it is. {{unsubscribe_url}} is used this way.
//   - Further behind, the value is one component: every byte is percent-encoded
//     except letters, digits and - . _ ~ (and @ in a mailto: address, + ( ) in a
//     tel: number). So it cannot end its parameter or path segment, and in a
//     path it must not be "." or "..".
//   - In a host name the value must be a host name or a part of one, and what
//     the template writes must follow it (https://{{shop}}.example.com/) unless
//     it is the whole host.
//
// Everywhere else a field is refused when the template is parsed: in names of
// elements and attributes, unquoted attributes, comments, script, style, event
// handlers, srcdoc, attributes that decide what an element does, and elements
// whose content parsers read differently. So is markup before a field that not
// all mail clients read alike, because then the place of the field is not
// certain.
//
// A value is never read as a template: {{x}} in a value stays what it is.
package mailmerge

import (
	"slices"
	"strings"
	"unicode/utf8"

	"golang.org/x/net/html"

	"email-gateway/shared/email"
)

// Template is a parsed subject or body. It is immutable and may be shared.
type Template struct {
	source   *source
	fields   []Field   // distinct, in order of first use
	segments []segment // in order of appearance
	tail     string    // text after the last field
	subject  bool      // the result is a header
}

// segment is a literal and the field after it.
type segment struct {
	literal string
	field   int // index in fields
	place   place
}

// ParseHTML parses an HTML body. It returns a *Fault if a field is malformed or in a place that is
// not allowed. Package htmlcheck decides whether the document itself may be sent: values do not
// change that result. A default may contain references, as editors write them: &amp; is &.
func ParseHTML(text string) (*Template, error) {
	src, fault := lex(text, html.UnescapeString)
	if fault != nil {
		return nil, fault
	}
	places, fault := placeInMarkup(src)
	if fault != nil {
		return nil, fault
	}
	return made(src.template(places))
}

// made prevents a nil *Fault from becoming a non-nil error.
func made(t *Template, fault *Fault) (*Template, error) {
	if fault != nil {
		return nil, fault
	}
	return t, nil
}

func asWritten(text string) string { return text }

// ParseText parses a plain text body, in which values are inserted unchanged. It returns a *Fault
// if a field is malformed.
func ParseText(text string) (*Template, error) {
	src, fault := lex(text, asWritten)
	if fault != nil {
		return nil, fault
	}
	places := make([]place, len(src.positions))
	for i := range places {
		places[i] = placeText
	}
	return made(src.template(places))
}

// ParseSubject parses a subject, whose rendered form has 1 to 150 characters and no control
// characters. It returns a *Fault if the template alone violates that or a field is malformed.
func ParseSubject(text string) (*Template, error) {
	src, fault := lex(text, asWritten)
	if fault != nil {
		return nil, fault
	}
	if fault = src.subjectFault(); fault != nil {
		return nil, fault
	}
	n := utf8.RuneCountInString(src.doc) - len(src.positions)
	if n > email.MaxSubject || src.doc == "" {
		return nil, src.fault(0, CodeSubjectLength, "a subject must have 1 to 150 characters")
	}
	places := make([]place, len(src.positions))
	for i := range places {
		places[i] = placeLine
	}
	t, fault := src.template(places)
	if fault != nil {
		return nil, fault
	}
	t.subject = true
	return t, nil
}

// subjectFault is a fault if the text of a subject has a control character.
func (s *source) subjectFault() *Fault {
	i := strings.IndexFunc(s.doc, func(r rune) bool { return email.HasControl(string(r)) })
	if i < 0 {
		return nil
	}
	return s.fault(i, CodeSubjectControl, "a subject must not contain line ends or other control characters")
}

// Fields returns the distinct names of the fields in order of first use, as
// written between the braces.
func (t *Template) Fields() []string {
	var names []string
	seen := make(map[string]bool, len(t.fields))
	for _, f := range t.fields {
		if !seen[f.Name] {
			seen[f.Name] = true
			names = append(names, f.Name)
		}
	}
	return names
}

// Slots returns the distinct fields in order of first use: a name with another default is a
// separate field.
func (t *Template) Slots() []Field {
	return append([]Field(nil), t.fields...)
}

// Has reports whether the template has a field of this name.
func (t *Template) Has(name string) bool {
	return slices.ContainsFunc(t.fields, func(f Field) bool { return f.Name == name })
}
