package mailing

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"unicode"

	"email-gateway/api/internal/csvfile"
	mailingstore "email-gateway/shared/store/mailing"
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

const oneRecipient = "are stored as one recipient, with the data of the last one, and if it is deleted, later mailings are sent to none of them"

// SharedRecipients describes rows that are stored as one recipient with several others, by the column whose value they have
// in common.
func (v *Validator) SharedRecipients(n mailingstore.Counts) (messages []string) {
	if n.SharedIDs > 0 {
		messages = append(messages, fmt.Sprintf("about %d rows have an id (column %s) that several other rows have: "+
			"all rows with one id "+oneRecipient+". Leave the column out unless it identifies people", n.SharedIDs, v.names[v.params.Header.ExternalID]))
	}
	if n.SharedTaxIDs > 0 {
		var columns []string
		for _, column := range v.taxIDs {
			columns = append(columns, v.names[column])
		}
		messages = append(messages, fmt.Sprintf("about %d rows have no id, and a CPF or CNPJ (column %s) that several other rows have: "+
			"all rows with one number "+oneRecipient+". Add a column id externo that identifies each person", n.SharedTaxIDs, strings.Join(columns, ", ")))
	}
	return messages
}

func isLetterOrNumber(r rune) bool { return unicode.IsLetter(r) || unicode.IsNumber(r) }
