package csvfile

import "bytes"

// cell is a quoted field with line breaks, without its quotes, in the window.
type cell struct {
	column     int // its number in the record
	start, end int
}

// rowShape is what a row of a file looks like if its quotes have no meaning.
type rowShape struct {
	address int // the column with the address
	reach   int // fields up to the address, and at least two of several columns: fewer are no row
	usual   int // fields of most rows
	most    int // fields of the header: a row may have more only if they are empty
}

// checkCells returns unclosed if all lines of a record with cells are rows: the quote that opens the first cell was
// never closed, and one in a later row was taken for its end. The rows must not become text that is sent to the
// recipient of another row. If only some of the lines are rows, it may be such text or a cell with a list of addresses,
// and the result is doubtful. A line is a row only if it has as many fields as most rows and another address in its
// column: hardly a line of a cell that was quoted correctly has both.
func (t *tokenizer) checkCells(shape rowShape) outcome {
	if len(t.cells) == 0 {
		return found
	}
	first, own := t.cells[0], span{start: t.stop, end: t.stop}
	if shape.address < len(t.fields) {
		if f := t.fields[shape.address]; !bytes.ContainsAny(t.buf[f.start:f.end], lineBreaks) {
			own = f
		}
	}
	if !t.contains('@', first.start, own.start) && !t.contains('@', max(first.start, own.end), t.stop) {
		return found
	}
	rows, others := t.countRows(first, own, shape)
	switch {
	case rows == 0:
		return found
	case others > 0:
		t.count = first.column
		return doubtful
	}
	t.count, t.lines = first.column, 1
	t.stop, t.next, _ = t.line()
	return unclosed
}

func (t *tokenizer) contains(b byte, start, end int) bool {
	return start < end && bytes.IndexByte(t.buf[start:end], b) >= 0
}

const lineBreaks = "\r\n"

// countRows counts the record's lines that are rows and those that cannot be rows. own is the address of the record.
func (t *tokenizer) countRows(first cell, own span, shape rowShape) (rows, others int) {
	before := first.column
	if t.stray { // a quoted field before the cell may be several
		before = bytes.Count(t.buf[t.pos:first.start], []byte{t.delimiter})
	}
	for start := first.start; ; before = 0 {
		stop := t.stop
		if i := bytes.IndexAny(t.buf[start:t.stop], lineBreaks); i >= 0 {
			stop = start + i
		}
		count, filled, address := t.split(start, stop, shape.address-before)
		isOwn := address.start <= own.start && own.start < address.end
		switch width := before + count; {
		case filled == 0 && start > first.start: // a blank line
		case width < shape.reach || before+filled > shape.most:
			others++
		case width >= shape.usual && !isOwn && isAddress(t.buf[address.start:address.end]):
			rows++
		}
		if stop == t.stop {
			return rows, others
		}
		start = t.after(stop)
	}
}

// split divides text as if quotes had no meaning: how many fields it has, how many up to the last non-empty one, and
// where field n is.
func (t *tokenizer) split(start, stop, n int) (count, filled int, nth span) {
	for {
		end := stop
		if i := bytes.IndexByte(t.buf[start:stop], t.delimiter); i >= 0 {
			end = start + i
		}
		from, to := t.trimmed(start, end)
		if count == n {
			nth = span{start: from, end: to}
		}
		if count++; from < to {
			filled = count
		}
		if end == stop {
			return count, filled, nth
		}
		start = end + 1
	}
}

// isAddress is a cheap check: text that contains an address among other words is none.
func isAddress(text []byte) bool {
	return bytes.IndexByte(text, '@') > 0 && bytes.IndexByte(text, ' ') < 0
}

// hasAddress reports whether a cell of the record contains an address.
func (t *tokenizer) hasAddress() bool {
	for _, c := range t.cells {
		text := t.buf[c.start:c.end]
		if at := bytes.IndexByte(text, '@'); at > 0 && bytes.IndexByte(text[at:], '.') > 0 {
			return true
		}
	}
	return false
}
