package csvfile

import "email-gateway/shared/email"

// Row is one row of a file. It is a view into the Reader's window: it and the fields
// taken from it are valid until the next call of Next.
type Row struct {
	Line     int // where it begins: physical line, 1-based, header and sep= line counted
	LastLine int // where it ends; another line only if a quoted field has line ends in it

	t *tokenizer
}

// Field is the text of a column, without white space around it; empty where the row is
// shorter than the header, and where the text shows nothing, as in JSON (email.IsBlank). It is valid UTF-8. The bytes may be read, not changed, until
// the next call of Next; string(row.Field(i)) outlives it.
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
	return text
}
