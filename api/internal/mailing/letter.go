package mailing

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"email-gateway/api/internal/csvfile"
	"email-gateway/shared/email"
	"email-gateway/shared/mailmerge"
	"email-gateway/shared/rules"
)

// Codes of what can be wrong with the fields of a template.
const (
	CodeUnknownField   = "UNKNOWN_MERGE_FIELD"
	CodeForbiddenField = "FORBIDDEN_MERGE_FIELD"
	CodeReservedColumn = "RESERVED_COLUMN"
)

// Letter is what a mailing sends: three templates, of which the text may be missing.
type Letter struct {
	Subject, HTML, Text *mailmerge.Template // nil where there is none, or a faulty one
}

// ParseLetter reads the templates and says what is wrong with each.
func ParseLetter(subject, html, text string) (Letter, []rules.Fault) {
	var l Letter
	var faults []rules.Fault
	parse := func(field, template string, parse func(string) (*mailmerge.Template, error)) *mailmerge.Template {
		if template == "" {
			return nil
		}
		parsed, err := parse(template)
		if err != nil {
			faults = append(faults, rules.Fault{Field: field, Code: email.CodeInvalidTemplate, Message: err.Error()})
			return nil
		}
		return parsed
	}
	l.Subject = parse(PartSubject, subject, mailmerge.ParseSubject)
	l.HTML = parse(PartHTML, html, mailmerge.ParseHTML)
	l.Text = parse(PartText, text, mailmerge.ParseText)
	return l, faults
}

// parts are the templates there are, by the names of the form's parts.
func (l Letter) parts(yield func(string, *mailmerge.Template) bool) {
	for _, p := range []struct {
		name     string
		template *mailmerge.Template
	}{{PartSubject, l.Subject}, {PartHTML, l.HTML}, {PartText, l.Text}} {
		if p.template != nil && !yield(p.name, p.template) {
			return
		}
	}
}

// isOwn says whether the gateway has a value of its own for the field, whatever
// columns there are. {{nome}} is a column.
func isOwn(name string) bool {
	return name == mailmerge.FieldEmail || name == mailmerge.FieldToken || name == mailmerge.FieldUnsubscribeURL
}

// CheckFields holds the fields of the templates to the columns of the file. A fault
// tells which fields nobody knows, and which ones there are.
func (l Letter) CheckFields(header *csvfile.Header) []rules.Fault {
	var faults []rules.Fault
	for part, template := range l.parts {
		var unknown, forbidden []string
		for _, name := range template.Fields() {
			switch column := header.Index(name); {
			case isOwn(name):
				if name != mailmerge.FieldEmail && column >= 0 {
					faults = addReserved(faults, name)
				}
			case column < 0:
				unknown = append(unknown, name)
			case header.IsTaxID(column):
				forbidden = append(forbidden, name)
			}
		}
		switch {
		case len(unknown) > 0:
			faults = append(faults, rules.Fault{Field: part, Code: CodeUnknownField, Message: fmt.Sprintf(
				"uses %s, which the file has no column for; its columns are %s; the gateway adds {{token}} and {{unsubscribe_url}}",
				braced(unknown), listed(header.Columns()))})
		case len(forbidden) > 0:
			faults = append(faults, rules.Fault{Field: part, Code: CodeForbiddenField, Message: fmt.Sprintf(
				"uses %s: a CPF or CNPJ is never written into an email", braced(forbidden))})
		}
	}
	return faults
}

func addReserved(faults []rules.Fault, name string) []rules.Fault {
	if slices.ContainsFunc(faults, func(f rules.Fault) bool { return f.Code == CodeReservedColumn }) {
		return faults
	}
	return append(faults, rules.Fault{Field: PartFile, Code: CodeReservedColumn, Message: fmt.Sprintf(
		"has a column %s, and the gateway fills in {{%s}} itself: call the column something else", name, name)})
}

func braced(names []string) string {
	return "{{" + strings.Join(names, "}}, {{") + "}}"
}

// listed is the columns for a message: all names, but not more than a screen of them.
func listed(columns []string) string {
	const most = 2000 // characters
	var all []string
	length := 0
	for _, name := range columns {
		if name == "" {
			continue
		}
		name = shortColumn(name)
		if length += len(name); length > most {
			return strings.Join(append(all, "…"), ", ")
		}
		all = append(all, name)
	}
	return strings.Join(all, ", ")
}

// shortColumn keeps what may be a whole line of data within the size of a name.
func shortColumn(name string) string {
	const longest = 100
	if runes := []rune(name); len(runes) > longest {
		return string(runes[:longest]) + "…"
	}
	return name
}

// columnsUsed are the fields whose values an entry keeps, as the templates write them:
// all but those that have a place of their own. Each is a name for mailings.fields.
func (l Letter) columnsUsed() []string {
	names := []string{}
	for _, template := range l.parts {
		for _, name := range template.Fields() {
			if !isOwn(name) && name != mailmerge.FieldNome && !slices.Contains(names, name) {
				names = append(names, name)
			}
		}
	}
	return names
}

// bound is a letter whose fields know their place among a row's values, which stand in
// the order of package mailmerge.
type bound struct {
	subject, html, text *mailmerge.Bound // text is nil where there is none
}

// bind assumes templates that CheckFields has nothing against.
func (l Letter) bind(used []string) (bound, error) {
	place := mailmerge.Place(used)
	var b bound
	var missing, more []string
	b.subject, missing = l.Subject.Bind(place)
	b.html, more = l.HTML.Bind(place)
	missing = append(missing, more...)
	if l.Text != nil {
		b.text, more = l.Text.Bind(place)
		missing = append(missing, more...)
	}
	if len(missing) > 0 {
		return bound{}, errors.New("bind templates: no value for " + braced(missing))
	}
	return b, nil
}
