package csvfile

import "bytes"

// cell is a quoted field with line breaks, without its quotes, in the window.
type cell struct {
	column     int // its number in the record
	start, end int
}

const lineBreaks = "\r\n"

// checkCells returns doubtful if a line of a record with cells is a row by itself: with quotes taken literally, it has
// another address than the record's in the column of addresses. Either the quote that opens the first cell was never
// closed, and one in a later row was taken for its end, or the cell is a list of addresses. In the first case the row
// must not be lost as text of another row, in the second it must not become a recipient. An address behind the last
// line of a cell is that of another column, if the record has the width of most rows.
func (t *tokenizer) checkCells(column int, ordinary bool) outcome {
	if len(t.cells) == 0 {
		return found
	}
	first, own := t.cells[0], span{start: t.stop, end: t.stop}
	if column < len(t.fields) {
		if f := t.fields[column]; !bytes.ContainsAny(t.buf[f.start:f.end], lineBreaks) {
			own = f
		}
	}
	if !t.contains('@', first.start, own.start) && !t.contains('@', max(first.start, own.end), t.stop) {
		return found
	}
	before := first.column
	if t.stray { // a quoted field before the cell may be several
		before = bytes.Count(t.buf[t.pos:first.start], []byte{t.delimiter})
	}
	for start, at := first.start, 0; start < t.stop; before = 0 {
		stop := t.lineEnd(start)
		for at+1 < len(t.cells) && t.cells[at+1].start <= start {
			at++
		}
		address, ok := t.nth(start, stop, column-before)
		text := t.buf[address.start:address.end]
		same := bytes.EqualFold(text, t.buf[own.start:own.end])
		if ok && !same && isAddress(text) && (address.start < t.cells[at].end || !ordinary) {
			t.count = first.column
			return doubtful
		}
		start = t.after(stop)
	}
	return found
}

func (t *tokenizer) contains(b byte, start, end int) bool {
	return start < end && bytes.IndexByte(t.buf[start:end], b) >= 0
}

// lineEnd returns the end of the line that contains start, at most the end of the record.
func (t *tokenizer) lineEnd(start int) int {
	if i := bytes.IndexAny(t.buf[start:t.stop], lineBreaks); i >= 0 {
		return start + i
	}
	return t.stop
}

// nth returns where field n of a text is if quotes have no meaning.
func (t *tokenizer) nth(start, stop, n int) (field span, ok bool) {
	for ; n >= 0; n-- {
		end := stop
		if i := bytes.IndexByte(t.buf[start:stop], t.delimiter); i >= 0 {
			end = start + i
		}
		if n == 0 {
			start, end = t.trimmed(start, end)
			return span{start: start, end: end}, true
		}
		if end == stop {
			break
		}
		start = end + 1
	}
	return span{}, false
}

// isAddress is a cheap check: text that contains an address among other words, or in parentheses, is none.
func isAddress(text []byte) bool {
	return bytes.IndexByte(text, '@') > 0 && !bytes.ContainsAny(text, " (")
}

// hasRow reports whether a line of the record after the first has a field that is an address, with quotes taken
// literally. It checks the header, before the column of addresses is known.
func (t *tokenizer) hasRow() bool {
	if len(t.cells) == 0 {
		return false
	}
	for stop := t.lineEnd(t.cells[0].start); stop < t.stop; {
		start := t.after(stop)
		stop = t.lineEnd(start)
		for field := range bytes.SplitSeq(t.buf[start:stop], []byte{t.delimiter}) {
			if isAddress(bytes.TrimSpace(field)) {
				return true
			}
		}
	}
	return false
}
