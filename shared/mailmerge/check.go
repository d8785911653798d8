package mailmerge

import "fmt"

// Check says whether AppendTo accepts the values, at the price of a look at each of
// them: nothing is rendered. Its error is a *ValueFault when a value cannot stand in its
// place. The length of a subject is not looked at.
func (b *Bound) Check(values []string) error {
	if len(values) < b.width {
		return fmt.Errorf("check: %d values for a template that needs %d", len(values), b.width)
	}
	for i := range b.segments {
		s := &b.segments[i]
		if code, detail := s.place.check(values[s.field]); code != "" {
			return &ValueFault{Code: code, Field: b.name(i), Detail: detail}
		}
	}
	return nil
}
