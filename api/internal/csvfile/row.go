package csvfile

// Row is one row of a file. It is a view into the Reader's window: it and the fields
// taken from it are valid until the next call of Next.
type Row struct {
	Line     int // where it begins: physical line, 1-based, header and sep= line counted
	LastLine int // where it ends; another line only if a quoted field has line ends in it

	t *tokenizer
}

// Field is the text of a column, without white space around it; empty where the row is
// shorter than the header. It is valid UTF-8. The bytes may be read, not changed, until
// the next call of Next; string(row.Field(i)) outlives it.
func (r Row) Field(column int) []byte {
	if column < 0 || column >= len(r.t.fields) {
		return nil
	}
	return r.t.text(column)
}
