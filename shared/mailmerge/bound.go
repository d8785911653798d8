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
	fields   []Field // as in the Template, whose source is not kept: it takes three times the memory
	segments []boundSegment
	tail     string
	subject  bool
	width    int // number of values
	literals int // bytes outside of fields
}

// boundSegment is a segment with the index of its value.
type boundSegment struct {
	segment
	value int
}

// boundSegmentBytes is the memory of a boundSegment.
const boundSegmentBytes = 40

// Memory is how many bytes the Bound takes, roughly.
func (b *Bound) Memory() int {
	n := 1024 + b.literals + len(b.segments)*boundSegmentBytes
	for _, f := range b.fields {
		n += 64 + len(f.Name) + len(f.Default)
	}
	return n
}

// Bind looks up each field once, by its Key. index returns the index of the field's value in the
// values passed to AppendTo; unknown keys are returned in missing, and then there is no Bound.
func (t *Template) Bind(index func(name string) (int, bool)) (b *Bound, missing []string) {
	columns := make([]int, len(t.fields))
	b = &Bound{fields: t.fields, segments: make([]boundSegment, len(t.segments)), tail: t.tail, subject: t.subject, literals: len(t.tail)}
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
	for i, s := range t.segments {
		b.segments[i] = boundSegment{s, columns[s.field]}
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
		room += len(values[b.segments[i].value])
	}
	if b.subject && room > email.MaxSubject*utf8.UTFMax { // the values may be long, and there may be many
		return dst, tooLong(fmt.Sprintf("more than %d characters", email.MaxSubject))
	}
	dst = slices.Grow(dst, room)
	for i := range b.segments {
		s := &b.segments[i]
		value := values[s.value]
		if code, detail := s.place.check(value); code != "" {
			return dst[:start], &ValueFault{Code: code, Field: b.fields[s.field].Name, Detail: detail}
		}
		dst = append(dst, s.literal...)
		dst = s.place.append(dst, value)
	}
	dst = append(dst, b.tail...)
	if b.subject {
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
		if s.value < len(values) {
			n += s.place.least(values[s.value])
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
		if s.value < len(values) {
			value = values[s.value]
		}
		n += s.place.size(value)
	}
	return n
}
