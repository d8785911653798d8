package mailmerge

import "fmt"

// Check reports whether AppendTo accepts the values, without rendering. Its error is a *ValueFault
// if a value is invalid in its place. The length of a subject is not checked.
func (b *Bound) Check(values []string) error {
	if len(values) < b.width {
		return fmt.Errorf("check: %d values for a template that needs %d", len(values), b.width)
	}
	for i := range b.segments {
		s := &b.segments[i]
		if code, detail := s.place.check(values[s.value]); code != "" {
			return &ValueFault{Code: code, Field: b.fields[s.field].Name, Detail: detail}
		}
	}
	return nil
}
