package mailmerge

import (
	"fmt"
	"slices"
	"unicode/utf8"

	"email-gateway/shared/email"
)

// Bound is a template whose fields are bound to columns. It is immutable and safe for concurrent
// use.
type Bound struct {
	template *Template
	segments []segment // with the index of the value instead of the name's
	width    int       // number of values
	literals int       // bytes outside of fields
}

// Bind looks up each field once, by its Key. index returns the index of the field's value in the
// values passed to AppendTo; unknown keys are returned in missing, and then there is no Bound.
func (t *Template) Bind(index func(name string) (int, bool)) (b *Bound, missing []string) {
	columns := make([]int, len(t.fields))
	b = &Bound{template: t, segments: slices.Clone(t.segments), literals: len(t.tail)}
	for i, field := range t.fields {
		column, ok := index(field.Key())
		if !ok || column < 0 {
			missing = append(missing, field.Key())
			continue
		}
		columns[i] = column
		b.width = max(b.width, column+1)
	}
	if len(missing) > 0 {
		return nil, missing
	}
	for i := range b.segments {
		s := &b.segments[i]
		s.field = columns[s.field]
		b.literals += len(s.literal)
	}
	return b, nil
}

// AppendTo renders the template with one recipient's values and appends the result to dst. On an
// error dst is returned unchanged: a *ValueFault if a value is invalid in its place or a subject
// does not have 1 to 150 characters.
func (b *Bound) AppendTo(dst []byte, values []string) ([]byte, error) {
	if len(values) < b.width {
		return dst, fmt.Errorf("render: %d values for a template that needs %d", len(values), b.width)
	}
	start := len(dst)
	room := b.literals
	for i := range b.segments {
		room += len(values[b.segments[i].field])
	}
	if b.template.subject && room > email.MaxSubject*utf8.UTFMax { // the values may be long, and there may be many
		return dst, tooLong(fmt.Sprintf("more than %d characters", email.MaxSubject))
	}
	dst = slices.Grow(dst, room)
	for i := range b.segments {
		s := &b.segments[i]
		value := values[s.field]
		if code, detail := s.place.check(value); code != "" {
			return dst[:start], &ValueFault{Code: code, Field: b.name(i), Detail: detail}
		}
		dst = append(dst, s.literal...)
		dst = s.place.append(dst, value)
	}
	dst = append(dst, b.template.tail...)
	if b.template.subject {
		if n := utf8.RuneCount(dst[start:]); n < 1 || n > email.MaxSubject {
			return dst[:start], tooLong(fmt.Sprintf("%d characters instead of 1 to %d", n, email.MaxSubject))
		}
	}
	return dst, nil
}

func tooLong(has string) *ValueFault {
	return &ValueFault{Code: CodeSubjectLength, Detail: "the subject has " + has}
}

// Least is a number of bytes that AppendTo appends at least, if it accepts the values. Unlike Size it does not read
// them. Missing values count as empty.
func (b *Bound) Least(values []string) int {
	n := b.literals
	for i := range b.segments {
		s := &b.segments[i]
		if s.field < len(values) {
			n += s.place.least(values[s.field])
		}
	}
	return n
}

// Size is how many bytes AppendTo appends for these values, if it accepts them. It makes one pass
// over the values and allocates nothing. Missing values count as empty.
func (b *Bound) Size(values []string) int {
	n := b.literals
	for i := range b.segments {
		s := &b.segments[i]
		value := ""
		if s.field < len(values) {
			value = values[s.field]
		}
		n += s.place.size(value)
	}
	return n
}

// name is the name of the field in the i-th segment.
func (b *Bound) name(i int) string {
	return b.template.fields[b.template.segments[i].field].Name
}
