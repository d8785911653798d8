package mailing

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
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

// Without names the bodies, html and text as far as there are such, that lack the field.
func (l Letter) Without(field string) []string {
	var parts []string
	for part, template := range l.parts {
		if part != PartSubject && !slices.Contains(template.Fields(), field) {
			parts = append(parts, part)
		}
	}
	return parts
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

// slots are the fields whose values an entry keeps: all but those that have a place of their
// own. One with a default has none, since its value is the default where the cell is empty.
func (l Letter) slots() []mailmerge.Field {
	slots := []mailmerge.Field{}
	for _, template := range l.parts {
		for _, f := range template.Slots() {
			own := !f.HasDefault && (isOwn(f.Name) || f.Name == mailmerge.FieldNome)
			if !own && !slices.Contains(slots, f) {
				slots = append(slots, f)
			}
		}
	}
	return slots
}

// expects are the columns that a field without a default stands for, each once.
func (l Letter) expects(header *csvfile.Header) []int {
	var columns []int
	for _, template := range l.parts {
		for _, f := range template.Slots() {
			if column := header.Index(f.Name); !f.HasDefault && !isOwn(f.Name) && column >= 0 && !slices.Contains(columns, column) {
				columns = append(columns, column)
			}
		}
	}
	slices.Sort(columns)
	return columns
}

// Stored is the letter as the worker reads it. Its templates have no defaults: a field with one
// is a field with a short name of its own, whose value was settled when the file was read. So
// a worker of a release that knows no defaults sends it too.
type Stored struct {
	Subject, HTML, Text string
	Fields              []string // of NewEntry.Fields, in its order
}

// Stored assumes templates that are there and without faults.
func (l Letter) Stored() Stored {
	slots := l.slots()
	s := Stored{Fields: make([]string, len(slots))}
	taken := map[string]bool{}
	for _, template := range l.parts {
		for _, name := range template.Fields() {
			taken[name] = true
		}
	}
	n := 0
	for i, f := range slots {
		if s.Fields[i] = f.Name; f.HasDefault {
			for n++; taken["d"+strconv.Itoa(n)]; n++ { // a column that the templates name so
			}
			s.Fields[i] = "d" + strconv.Itoa(n)
		}
	}
	plain := func(t *mailmerge.Template) string {
		if t == nil {
			return ""
		}
		return t.Plain(func(f mailmerge.Field) string { return s.Fields[slices.Index(slots, f)] })
	}
	s.Subject, s.HTML, s.Text = plain(l.Subject), plain(l.HTML), plain(l.Text)
	return s
}

// keys are the names by which the templates bind them.
func keys(slots []mailmerge.Field) []string {
	names := make([]string, len(slots))
	for i, f := range slots {
		names[i] = f.Key()
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
