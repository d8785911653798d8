package mailing

import (
	"bytes"

	"email-gateway/api/internal/csvfile"
	"email-gateway/shared/email"
)

// cells are the values of a row that its entry stores. A cell is copied once, however many of the values it is: a
// template may use a column in hundreds of fields.
type cells struct {
	sources []source
	of      []int    // index in sources, by value
	texts   []string // of the sources, in the current row
}

// source is a column as text, or as a single line for the subject.
type source struct {
	column int
	line   bool
}

// newCells makes the cells of values whose columns are given. inSubject says which of them the subject uses, where line
// breaks are not allowed.
func newCells(columns []int, inSubject []bool) cells {
	var c cells
	index := map[source]int{}
	for i, column := range columns {
		s := source{column: column, line: inSubject[i]}
		at, known := index[s]
		if !known {
			at = len(c.sources)
			index[s] = at
			c.sources = append(c.sources, s)
		}
		c.of = append(c.of, at)
	}
	c.texts = make([]string, len(c.sources))
	return c
}

// readCells copies the cells of a row.
func (v *Validator) readCells(row csvfile.Row) {
	for i, s := range v.cells.sources {
		if s.line {
			v.cells.texts[i] = v.keepLine(row.Field(s.column))
		} else {
			v.cells.texts[i] = v.keep(row.Field(s.column))
		}
	}
}

// value is the i-th value; empty if its cell is.
func (c *cells) value(i int) string { return c.texts[c.of[i]] }

// beginText allocates the memory for all texts of a row: a row costs three allocations, of which
// the token and the id are the others.
func (v *Validator) beginText(row csvfile.Row) {
	size := 0
	for _, column := range v.kept {
		size += len(row.Field(column))
	}
	v.text.Reset()
	v.text.Grow(size)
}

// keep copies a field, so that it outlives the row.
func (v *Validator) keep(field []byte) string {
	begin := v.text.Len()
	v.text.Write(field)
	return v.text.String()[begin:]
}

// keepLine is keep for single-line text: a line break or tab becomes a space, together with the
// invisible characters around it.
func (v *Validator) keepLine(field []byte) string {
	begin := v.text.Len()
	for {
		n := -1
		if mayBreak(field) {
			n = bytes.IndexFunc(field, isLineBreak)
		}
		if n < 0 {
			v.text.Write(field)
			return v.text.String()[begin:]
		}
		v.text.Write(bytes.TrimRightFunc(field[:n], email.IsInvisible))
		v.text.WriteByte(' ')
		field = bytes.TrimLeftFunc(field[n:], email.IsInvisible)
	}
}

// mayBreak is a cheap check that avoids isLineBreak for nearly all fields.
func mayBreak(field []byte) bool {
	for _, b := range field {
		if b < ' ' || b == 0xC2 || b == 0xE2 {
			return true
		}
	}
	return false
}

func isLineBreak(r rune) bool {
	return r >= '\t' && r <= '\r' || r == '\u0085' || r == '\u2028' || r == '\u2029'
}
