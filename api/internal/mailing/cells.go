package mailing

import "email-gateway/api/internal/csvfile"

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
func (j *Validator) readCells(row csvfile.Row) {
	for i, s := range j.cells.sources {
		if s.line {
			j.cells.texts[i] = j.keepLine(row.Field(s.column))
		} else {
			j.cells.texts[i] = j.keep(row.Field(s.column))
		}
	}
}

// value is the i-th value; empty if its cell is.
func (c *cells) value(i int) string { return c.texts[c.of[i]] }
