// Package template renders stored templates: a subject, an HTML body and a text body with variables
// and sections, filled with the data of one email.
//
// The language is that of package mailmerge, which also decides where in HTML a variable may stand and
// how its value is escaped there, with these tags of Mustache:
//
//   - {{name}} or {{customer.name}} is a text, number or boolean of the data; {{name|text}} has a
//     default for one that is missing or empty; {{.}} is the current element of a list.
//   - {{#name}}…{{/name}} is rendered once for each element of a list, once for another value, and not
//     for false, null, "" or an empty list. Names inside are looked up in the element first.
//   - {{^name}}…{{/name}} is rendered if {{#name}} would not be.
//   - {{! comment}} is removed.
//
// A section may be opened and closed in text or within one quoted attribute, and the tags of elements
// between must be complete. So the parser state before and after it is the same, and each variable is
// escaped for one place only, however often sections are repeated.
//
// Unlike Mustache, a name that the data lacks is an error, unless a variable with this name is declared
// with a default or as not required.
package template

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"email-gateway/shared/email"
	"email-gateway/shared/mailmerge"
	"email-gateway/shared/rules"
)

// Limits of a template.
const (
	MaxBody        = email.MaxHTML // bytes of html and of text
	MaxSubject     = 2000          // bytes of the subject, with its tags
	maxVariables   = 200
	maxDescription = 500  // characters
	maxDefault     = 4096 // bytes of JSON
)

// Source is a template as uploaded.
type Source struct {
	Subject   string
	HTML      string // "" = none
	Text      string // "" = none
	Variables []Variable
}

// Variable declares a name that the data has at its top level.
type Variable struct {
	Name        string          `json:"name"`
	Required    *bool           `json:"required,omitempty"` // nil = required unless there is a default
	Default     json.RawMessage `json:"default,omitempty"`  // any JSON value
	Description string          `json:"description,omitempty"`
}

// required reports whether the data must have the variable.
func (v Variable) required() bool {
	if v.Required != nil {
		return *v.Required
	}
	return v.Default == nil
}

// Template is a parsed Source. It is immutable and safe for concurrent use.
type Template struct {
	subject, html, text *part // html and text may be nil
	required            []string
	defaults            map[string]any
	size                int
}

// Size is the memory that the template takes, in bytes, roughly.
func (t *Template) Size() int { return t.size }

// Parse parses a template. The faults name the fields subject, html, text and variables.
func Parse(s Source) (*Template, rules.Faults) {
	var faults rules.Faults
	t := &Template{size: 1024 + len(s.Subject) + len(s.HTML) + len(s.Text)}
	for _, p := range []struct {
		field, text string
		limit       int
		parse       func(string) (*mailmerge.Outline, error)
		into        **part
	}{
		{"subject", s.Subject, MaxSubject, mailmerge.OutlineSubject, &t.subject},
		{"html", s.HTML, MaxBody, mailmerge.OutlineHTML, &t.html},
		{"text", s.Text, MaxBody, mailmerge.OutlineText, &t.text},
	} {
		switch {
		case p.text == "":
			continue
		case len(p.text) > p.limit:
			faults.Add(p.field, rules.CodeTooLong, fmt.Sprintf("must be at most %d bytes of UTF-8", p.limit))
			continue
		}
		outline, err := p.parse(p.text)
		if err != nil {
			addFault(&faults, p.field, err)
			continue
		}
		*p.into = newPart(outline)
		t.size += len(outline.Tags) * nodeSize
	}
	if email.IsBlank(s.Subject) {
		faults.Add("subject", rules.CodeRequired, "is required")
	}
	if email.IsBlank(s.HTML) && email.IsBlank(s.Text) {
		faults.Add("html", rules.CodeRequired, "is required unless text is given")
	}
	t.declare(s.Variables, &faults)
	if len(faults) > 0 {
		return nil, faults
	}
	return t, nil
}

// addFault reports an error of the parser, with its line and column.
func addFault(faults *rules.Faults, field string, err error) {
	var fault *mailmerge.Fault
	if errors.As(err, &fault) {
		faults.Add(field, fault.Code, fmt.Sprintf("line %d, column %d: %s", fault.Line, fault.Column, fault.Detail))
		return
	}
	faults.Add(field, "INVALID", err.Error())
}

// declare reads the declarations of variables.
func (t *Template) declare(variables []Variable, faults *rules.Faults) {
	if len(variables) > maxVariables {
		faults.Add("variables", rules.CodeTooLong, fmt.Sprintf("must have at most %d entries", maxVariables))
		return
	}
	t.defaults = make(map[string]any)
	seen := make(map[string]bool)
	for i, v := range variables {
		field := fmt.Sprintf("variables[%d]", i)
		switch {
		case v.Name == "" || strings.ContainsAny(v.Name, ".{}|") || email.HasControl(v.Name) || len(v.Name) > 100:
			faults.Add(field+".name", "INVALID_NAME", "must be a name of 1 to 100 bytes without . { } |: declare the outermost name of nested data")
		case seen[v.Name]:
			faults.Add(field+".name", rules.CodeDuplicateField, "is declared twice")
		case len([]rune(v.Description)) > maxDescription:
			faults.Add(field+".description", rules.CodeTooLong, fmt.Sprintf("must have at most %d characters", maxDescription))
		case len(v.Default) > maxDefault:
			faults.Add(field+".default", rules.CodeTooLong, fmt.Sprintf("must have at most %d bytes", maxDefault))
		}
		seen[v.Name] = true
		t.size += len(v.Name) + len(v.Default) + 64
		switch {
		case v.Default != nil && v.Required != nil && *v.Required:
			faults.Add(field+".required", rules.CodeNotAllowed, "must not be true together with a default")
		case v.Default != nil:
			value, n, err := decode(v.Default)
			if err != nil {
				faults.Add(field+".default", "INVALID", err.Error())
			}
			t.defaults[v.Name] = value
			t.size += n * valueSize
		case v.required():
			t.required = append(t.required, v.Name)
		default:
			t.defaults[v.Name] = nil
		}
	}
}

// Data is the data of one email.
type Data struct{ root map[string]any }

// Limits of data.
const (
	maxData      = 512 << 10 // bytes of JSON
	MaxValues    = 20_000    // texts, numbers, lists …: each takes far more memory than JSON
	maxDataDepth = 10
)

// valueSize is roughly the most memory that one value takes: an object with one name.
const valueSize = 200

// DataMemory is the most memory that data with so many bytes of JSON takes beside its text. A value has two bytes or more.
func DataMemory(bytes int) int64 { return int64(min(bytes/2, MaxValues)) * valueSize }

// ReadData reads a JSON object; "" is an empty one. The error continues "the data".
func ReadData(raw []byte) (Data, error) {
	if len(raw) > maxData {
		return Data{}, fmt.Errorf("must have at most %d bytes of JSON", maxData)
	}
	if len(bytes.TrimSpace(raw)) == 0 {
		return Data{root: map[string]any{}}, nil
	}
	value, _, err := decode(raw)
	if err != nil {
		return Data{}, err
	}
	root, ok := value.(map[string]any)
	if !ok {
		return Data{}, errors.New("must be an object")
	}
	return Data{root: root}, nil
}
