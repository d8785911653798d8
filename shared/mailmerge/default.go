package mailmerge

import (
	"strings"

	"email-gateway/shared/email"
)

// Field is the content of double braces: {{nome}}, or {{nome|cliente}} with a default for an empty
// value. Each default makes a separate field, whose value the caller of AppendTo provides.
type Field struct {
	Name       string // as written
	Default    string // without the space around it
	HasDefault bool   // {{nome|}} has an empty default
}

// Key names the field for Bind: nome, or nome|cliente.
func (f Field) Key() string {
	if f.HasDefault {
		return f.Name + "|" + f.Default
	}
	return f.Name
}

// IsPlain reports whether programs of releases without defaults, and without signs in names, can read the field.
func (f Field) IsPlain() bool {
	return !f.HasDefault && !strings.ContainsFunc(f.Name, func(r rune) bool { return !isPlainRune(r) })
}

// maxDefault is the maximum length of a default in characters.
const maxDefault = 200

const noBraces = "a default must not contain { or }: }} closes the field"

// withDefault is a field with the text after its bar. Values of the gateway's own are
// never empty, so that a default changes nothing.
func withDefault(name, text string) (field Field, detail string) {
	text = strings.TrimFunc(text, email.IsInvisible)
	switch {
	case strings.Contains(text, "{{"):
		return Field{}, "a default must be plain text without fields"
	case strings.ContainsAny(text, "{}"):
		return Field{}, noBraces
	case strings.HasPrefix(text, "|"):
		return Field{}, "write one bar before the default: {{" + name + "|cliente}}"
	case isQuoted(text):
		return Field{}, "write the default without quotes: {{" + name + "|cliente}}"
	case strings.HasPrefix(text, "default:"), strings.HasPrefix(text, "default "):
		return Field{}, "write only the default after the bar: {{" + name + "|cliente}}"
	case len([]rune(text)) > maxDefault:
		return Field{}, "a default must have at most 200 characters"
	case email.HasLineBreak(text):
		return Field{}, "a default must be on one line"
	case name == FieldEmail || name == FieldToken || name == FieldUnsubscribeURL:
		return Field{Name: name}, ""
	}
	return Field{Name: name, Default: text, HasDefault: true}, ""
}

// isQuoted reports whether a default has the quotes of a programming language.
func isQuoted(text string) bool {
	return len(text) > 1 && (text[0] == '"' || text[0] == '\'') && text[len(text)-1] == text[0]
}

// Plain is the template with plain fields only: each other one (see Field.IsPlain) is replaced by a field with the
// name that rename returns.
func (t *Template) Plain(rename func(f Field) string) string {
	var b strings.Builder
	done := 0
	for _, value := range t.source.positions {
		written := t.source.text[value.start:value.end]
		if value.field.IsPlain() && !strings.Contains(written, "|") {
			continue
		}
		name := value.field.Name
		if !value.field.IsPlain() {
			name = rename(value.field)
		}
		b.WriteString(t.source.text[done:value.start])
		b.WriteString("{{" + name + "}}")
		done = value.end
	}
	b.WriteString(t.source.text[done:])
	return b.String()
}

// Literals is the template's text without the fields.
func (t *Template) Literals() string {
	var b strings.Builder
	for _, s := range t.segments {
		b.WriteString(s.literal)
	}
	return b.String() + t.tail
}
