package csvfile

import "bytes"

// scanQuoted parses a record whose first line contains a quote byte by byte, because it may end on another
// line. Until it is found, t.next is the line after its first.
//
// A malformed record costs the lines that are rejected, and what lies between the last opening quote and the next
// undoubled one, where the search ends, so that a file of malformed records is still read in linear time.
func (t *tokenizer) scanQuoted() outcome {
	horizon := min(t.end, t.pos+t.limit+1) // the byte after the longest possible record: its line end
	for i := t.pos; ; {
		start, open := i, i
		for open < horizon && t.blank(open) {
			open++ // name, "Silva, João": written by hand
		}
		var v outcome
		if open < horizon && t.buf[open] == '"' {
			i, v = t.quotedField(open, horizon)
		} else {
			i, v = t.plainField(i, horizon)
		}
		t.looked += i - start
		switch {
		case v == unclosed:
			return t.reject(start)
		case v != found:
			return v
		case i == t.end || t.buf[i] != t.delimiter:
			return t.finish(i)
		}
		i++
	}
}

// reject ends a malformed record after the line of the field that is malformed; start is where the field begins. Lines
// before that line may be lines of a cell: they are not read again, so that none becomes a row, and so that a chain of
// cells is not read once per line.
func (t *tokenizer) reject(start int) outcome {
	i := bytes.LastIndexAny(t.buf[t.pos:start], lineBreaks)
	if i < 0 {
		return unclosed
	}
	last := t.pos + i + 1
	line := t.buf[last:min(t.end, last+t.limit+1)]
	n := bytes.IndexAny(line, lineBreaks)
	switch {
	case n >= 0:
	case len(line) > t.limit: // it is rejected as the next row
		t.lines, t.stop, t.next = countLines(t.buf[t.pos:last]), last, last
		t.count = t.cells[0].column
		return doubtful
	case !t.eof:
		return short
	default:
		n = len(line)
	}
	if v := t.finish(last + n); v != found {
		return v
	}
	t.count = t.cells[0].column
	return doubtful
}

// finish ends the record at i: a line end or the end of the file.
func (t *tokenizer) finish(i int) outcome {
	if i < t.end && t.buf[i] == '\r' && i+1 == t.end && !t.eof {
		return short // a LF may follow
	}
	t.lines = 1 + countLines(t.buf[t.pos:i])
	t.stop, t.next = i, i
	if i < t.end {
		t.next = t.after(i)
	}
	return found
}

// plainField reads from start to the next delimiter or line end, including quotes.
func (t *tokenizer) plainField(start, horizon int) (int, outcome) {
	i := t.skipPlain(start, horizon)
	if v := t.within(i, horizon); v != found {
		return i, v
	}
	t.field(start, i, false)
	return i, found
}

// quotedField reads the field whose opening quote is at open.
func (t *tokenizer) quotedField(open, horizon int) (int, outcome) {
	closing, escaped, v := t.closingQuote(open, horizon)
	if v != found {
		return closing, v
	}
	inside := t.buf[open+1 : closing]
	crossing := bytes.IndexByte(inside, '\n') >= 0
	if bytes.IndexByte(inside, '\r') >= 0 {
		crossing, escaped = true, true
	}
	i := closing + 1
	for i < horizon && t.blank(i) {
		i++
	}
	if i < horizon && !t.ends(t.buf[i]) {
		if crossing {
			return i, unclosed // this quote opens a field on its own line
		}
		return t.literalField(open, i, horizon)
	}
	if v := t.within(i, horizon); v != found {
		return i, v
	}
	if crossing {
		t.cells = append(t.cells, cell{t.count, open + 1, closing})
	}
	t.field(open+1, closing, escaped)
	return i, found
}

// literalField reads a field with text after its closing quote, from its opening quote to the next
// delimiter or line end; i is the start of that text.
func (t *tokenizer) literalField(open, i, horizon int) (int, outcome) {
	i = t.skipPlain(i, horizon)
	if v := t.within(i, horizon); v != found {
		return i, v
	}
	t.stray = true
	t.open = t.open || bytes.Count(t.buf[open:i], []byte{'"'})%2 != 0
	start, end := trim(t.buf, open, i)
	if t.buf[end-1] == '"' {
		t.field(start+1, end-1, true)
	} else {
		t.field(start, end, false)
	}
	return i, found
}

// closingQuote finds the first undoubled quote after open. At the end of the window it may still turn out
// to be doubled: the following search for the field's end then fails.
func (t *tokenizer) closingQuote(open, horizon int) (at int, escaped bool, v outcome) {
	for i := open + 1; ; i += 2 {
		if i > horizon {
			i = horizon
		}
		n := bytes.IndexByte(t.buf[i:horizon], '"')
		if n < 0 {
			if horizon == t.end && !t.eof {
				return i, false, short
			}
			return i, false, unclosed
		}
		i += n
		if i+1 >= t.end || t.buf[i+1] != '"' {
			return i, escaped, found
		}
		escaped = true
	}
}

func (t *tokenizer) skipPlain(i, horizon int) int {
	for i < horizon && !t.ends(t.buf[i]) {
		i++
	}
	return i
}

// within reports whether a field that ends at i is acceptable: only a quote can make a record exceed the
// limit.
func (t *tokenizer) within(i, horizon int) outcome {
	switch {
	case i < horizon, i == t.end && t.eof && i-t.pos <= t.limit:
		return found
	case horizon == t.end && !t.eof:
		return short
	}
	return unclosed
}

// ends reports whether b ends an unquoted field.
func (t *tokenizer) ends(b byte) bool {
	return b == t.delimiter || b == '\n' || b == '\r'
}

// blank reports whether there is a space at i that is not the delimiter.
func (t *tokenizer) blank(i int) bool {
	return t.buf[i] == ' ' || t.buf[i] == '\t' && t.delimiter != '\t'
}
