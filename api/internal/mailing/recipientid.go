package mailing

import (
	"regexp"
	"slices"
	"unicode"

	"email-gateway/api/internal/csvfile"
)

// rounded matches a long number that a spreadsheet has rounded: all numbers of a range become the same text.
var rounded = regexp.MustCompile(`^[0-9]([.,][0-9]+)?[Ee]\+[0-9]+$`)

// identifies reports whether the text of the id column can be the id of one recipient. "-" and 0, which exporters write
// for recipients without an id, would make one recipient of all of them.
func identifies(field []byte) bool {
	for _, r := range string(field) {
		if isLetterOrNumber(r) && r != '0' {
			return !rounded.Match(field)
		}
	}
	return false
}

// reportID reports the id column of a row whose id was ignored. The row is sent.
func (v *Validator) reportID(row csvfile.Row) {
	column := v.params.Header.ExternalID
	ignored := len(row.Field(column)) > 0 && v.entry.ExternalID == "" || row.IsErrorValue(column)
	if ignored && !slices.Contains(v.entry.EmptyFields, v.names[column]) {
		v.entry.EmptyFields = append(v.entry.EmptyFields, v.names[column])
	}
}

func isLetterOrNumber(r rune) bool { return unicode.IsLetter(r) || unicode.IsNumber(r) }
