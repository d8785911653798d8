package mailing

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"unicode"

	"email-gateway/api/internal/csvfile"
	"email-gateway/shared/email"
	"email-gateway/shared/mailmerge"
	"email-gateway/shared/rules"
)

// Codes of faults of template fields.
const (
	CodeUnknownField   = "UNKNOWN_MERGE_FIELD"
	CodeForbiddenField = "FORBIDDEN_MERGE_FIELD"
	CodeReservedColumn = "RESERVED_COLUMN"
	CodeFieldClash     = "MERGE_FIELD_CLASH"
)

// Templates holds the templates of a mailing: subject, and HTML or text or both.
type Templates struct {
	Subject, HTML, Text *mailmerge.Template // nil if missing or invalid
}

// ParseTemplates parses the templates and reports the faults of each.
func ParseTemplates(subject, html, text string) (Templates, []rules.Fault) {
	var l Templates
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

// parts yields the existing templates with the names of their form parts.
func (l Templates) parts(yield func(string, *mailmerge.Template) bool) {
	for _, p := range []struct {
		name     string
		template *mailmerge.Template
	}{{PartSubject, l.Subject}, {PartHTML, l.HTML}, {PartText, l.Text}} {
		if p.template != nil && !yield(p.name, p.template) {
			return
		}
	}
}

// Without returns the names of the existing bodies, html and text, that do not use the field.
// It implements Content, as CheckFields and Stored do.
func (l Templates) Without(field string) []string {
	var parts []string
	for part, template := range l.parts {
		if part != PartSubject && !slices.Contains(template.Fields(), field) {
			parts = append(parts, part)
		}
	}
	return parts
}

// isOwn reports whether the gateway provides the value of the field. {{nome}} is a column.
func isOwn(name string) bool {
	return name == mailmerge.FieldEmail || name == mailmerge.FieldToken || name == mailmerge.FieldUnsubscribeURL
}

// CheckFields compares the fields of the templates with the columns of the file. A fault lists
// the unknown fields and the columns.
func (l Templates) CheckFields(header *csvfile.Header) []rules.Fault {
	var faults []rules.Fault
	var stored storedFields
	var limits entryLimits
	for part, template := range l.parts {
		for _, f := range template.Slots() {
			if column := header.Index(f.Name); stored.add(f) && column >= 0 {
				limits.add(part, f.Name, column, f.Default)
			}
		}
		var unknown, forbidden, repeated, secret []string
		for _, name := range template.Fields() {
			switch column := header.Index(name); {
			case isOwn(name):
				if isReserved(name) && column >= 0 {
					faults = addReserved(faults, name)
				}
				if isReserved(name) && part == PartSubject {
					secret = append(secret, name)
				}
			case column < 0:
				unknown = append(unknown, name)
			case header.IsTaxID(column):
				forbidden = append(forbidden, name)
			case header.CheckUnique(column) != nil:
				repeated = append(repeated, name)
			}
		}
		switch {
		case len(unknown) > 0:
			faults = append(faults, unknownFields(part, unknown, header))
		case len(forbidden) > 0:
			faults = append(faults, forbiddenFields(part, forbidden))
		case len(repeated) > 0:
			faults = append(faults, repeatedColumn(part, repeated[0], header))
		case len(secret) > 0:
			faults = append(faults, secretFields(part, secret))
		}
	}
	return limits.addTo(faults)
}

func unknownFields(part string, unknown []string, header *csvfile.Header) rules.Fault {
	return rules.Fault{Field: part, Code: CodeUnknownField, Message: fmt.Sprintf(
		"uses %s, but the file has no such column; its columns are %s; the gateway adds {{token}} and {{unsubscribe_url}}",
		listed(strings.Split(inBraces(unknown), ", ")), listed(header.Columns()))}
}

func forbiddenFields(part string, forbidden []string) rules.Fault {
	return rules.Fault{Field: part, Code: CodeForbiddenField, Message: fmt.Sprintf(
		"uses %s: a CPF or CNPJ is never written into an email", inBraces(forbidden))}
}

func repeatedColumn(part, name string, header *csvfile.Header) rules.Fault {
	return rules.Fault{Field: part, Code: csvfile.CodeDuplicateColumn, Message: fmt.Sprintf(
		"uses %s, but %v: rename one of them", inBraces([]string{name}), header.CheckUnique(header.Index(name)))}
}

// secretFields refuses a token in a subject, which is in the task of the email, in lists and in the logs of mail servers.
func secretFields(part string, names []string) rules.Fault {
	return rules.Fault{Field: part, Code: CodeForbiddenField, Message: fmt.Sprintf(
		"uses %s in the subject, which must not contain a token: only html and text may", inBraces(names))}
}

// isReserved reports whether a file must not have a column of this name beside content that uses it.
func isReserved(name string) bool { return isOwn(name) && name != mailmerge.FieldEmail }

func addReserved(faults []rules.Fault, name string) []rules.Fault {
	if slices.ContainsFunc(faults, func(f rules.Fault) bool { return f.Code == CodeReservedColumn }) {
		return faults
	}
	return append(faults, rules.Fault{Field: PartFile, Code: CodeReservedColumn, Message: fmt.Sprintf(
		"has a column %s, but the gateway provides {{%s}} itself: rename the column", name, name)})
}

func inBraces(names []string) string {
	return "{{" + strings.Join(names, "}}, {{") + "}}"
}

// listed joins the column names for a message, up to 2000 characters.
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

// shortColumn truncates a column name, which may be a whole line of data, and replaces control characters: it is
// printed on terminals.
func shortColumn(name string) string {
	const longest = 100
	name = strings.Map(func(r rune) rune {
		if unicode.IsControl(r) {
			return ' '
		}
		return r
	}, name)
	if runes := []rune(name); len(runes) > longest {
		return string(runes[:longest]) + "…"
	}
	return name
}

// Stored holds the templates as the worker reads them. Their fields have no defaults, and no signs in
// their names: a field with either becomes one with a generated short name, whose value was
// determined when the file was read. So a worker of a release without them can send it too.
type Stored struct {
	Subject, HTML, Text string
	Fields              []string // names of NewEntry.Fields, in order
	Template, Variables string   // of a StoredTemplate: its version, and what that declares
}

// Stored requires existing templates without faults.
func (l Templates) Stored(*csvfile.Header) (Stored, error) { return l.plain(), nil }

func (l Templates) plain() Stored {
	stored := l.storedFields()
	s := Stored{Fields: make([]string, len(stored.fields))}
	taken := map[string]bool{}
	for _, template := range l.parts {
		for _, name := range template.Fields() {
			taken[name] = true
		}
	}
	n := 0
	for i, f := range stored.fields {
		if s.Fields[i] = f.Name; !f.IsPlain() {
			for n++; taken["d"+strconv.Itoa(n)]; n++ { // skip names that the templates use for a column
			}
			s.Fields[i] = "d" + strconv.Itoa(n)
		}
	}
	plain := func(t *mailmerge.Template) string {
		if t == nil {
			return ""
		}
		return t.Plain(func(f mailmerge.Field) string { return s.Fields[stored.index[f]] })
	}
	s.Subject, s.HTML, s.Text = plain(l.Subject), plain(l.HTML), plain(l.Text)
	return s
}

// bound holds templates whose fields are resolved to indexes of a row's values, in the order of
// package mailmerge.
type bound struct {
	subject, html, text *mailmerge.Bound // html or text may be nil
}

// bodies yields the existing bodies.
func (b *bound) bodies(yield func(*mailmerge.Bound) bool) {
	for _, body := range []*mailmerge.Bound{b.html, b.text} {
		if body != nil && !yield(body) {
			return
		}
	}
}

// bind requires templates that passed CheckFields.
func (l Templates) bind(used []string) (bound, error) {
	place := mailmerge.Place(used)
	var b bound
	var missing, more []string
	b.subject, missing = l.Subject.Bind(place)
	for _, body := range []struct {
		template *mailmerge.Template
		into     **mailmerge.Bound
	}{{l.HTML, &b.html}, {l.Text, &b.text}} {
		if body.template != nil {
			*body.into, more = body.template.Bind(place)
			missing = append(missing, more...)
		}
	}
	if len(missing) > 0 {
		return bound{}, errors.New("bind templates: no value for " + inBraces(missing))
	}
	return b, nil
}
