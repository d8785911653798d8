package csvfile

import "email-gateway/shared/email"

// Row is one row of a file. It and its fields point into the Reader's window and are valid until the next
// call of Next.
type Row struct {
	Line     int // first physical line, 1-based, counting header and sep= line
	LastLine int // last line; differs only if a quoted field contains line breaks

	t *tokenizer
}

// Field returns the text of a column without surrounding white space; empty if the row is shorter than the
// header, if the text is blank as in JSON (email.IsBlank), or if it is the error of a spreadsheet. It is valid UTF-8. The bytes
// must not be changed and are valid until the next call of Next; string(row.Field(i)) outlives it.
func (r Row) Field(column int) []byte {
	if column < 0 || column >= len(r.t.fields) {
		return nil
	}
	text := r.t.text(column)
	// Without invisible characters around it, a blank text begins with a variation selector
	// (U+FE00) or a tag (U+E0000).
	if len(text) > 0 && (text[0] == 0xef || text[0] == 0xf3) && email.IsBlank(string(text)) {
		return nil
	}
	if isErrorValue(text) {
		return nil
	}
	return text
}
