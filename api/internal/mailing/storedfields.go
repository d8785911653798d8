package mailing

import (
	"slices"

	"email-gateway/api/internal/csvfile"
	"email-gateway/shared/mailmerge"
)

// storedFields are the fields whose values an entry stores: all except those that are stored elsewhere
// and have no default. A field with a default is stored, because an empty cell has the default
// as value.
type storedFields struct {
	fields []mailmerge.Field // in order of first use
	index  map[mailmerge.Field]int
}

// storedFields are those of all templates.
func (l Templates) storedFields() storedFields {
	var s storedFields
	for _, template := range l.parts {
		for _, f := range template.Slots() {
			s.add(f)
		}
	}
	return s
}

// add reports whether the field is a new one.
func (s *storedFields) add(f mailmerge.Field) bool {
	own := !f.HasDefault && (isOwn(f.Name) || f.Name == mailmerge.FieldNome)
	if _, known := s.index[f]; own || known {
		return false
	}
	if s.index == nil {
		s.index = map[mailmerge.Field]int{}
	}
	s.index[f] = len(s.fields)
	s.fields = append(s.fields, f)
	return true
}

// keys returns the names by which the templates bind the fields.
func (s *storedFields) keys() []string {
	names := make([]string, len(s.fields))
	for i, f := range s.fields {
		names[i] = f.Key()
	}
	return names
}

// expects returns the columns of fields without a default, each once.
func (l Templates) expects(header *csvfile.Header) []int {
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
