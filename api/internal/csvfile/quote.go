package csvfile

import "bytes"

// scanQuoted looks for a record whose first line has a quote in it, byte by byte: it
// may end on another line. t.next is the line after its first until it is found.
//
// A broken record costs what lies between its opening quote and the next one that
// is not doubled. That one ends the search, so a file full of broken records is still
// read in a time that grows with its size only.
func (t *tokenizer) scanQuoted() verdict {
	horizon := min(t.end, t.pos+t.limit+1) // the byte after the longest record: its line end
	for i := t.pos; ; {
		open := i
		for open < horizon && t.blank(open) {
			open++ // name, "Silva, João": by hand
		}
		var v verdict
		if open < horizon && t.buf[open] == '"' {
			i, v = t.quotedField(open, horizon)
		} else {
			i, v = t.plainField(i, horizon)
		}
		if v != found {
			return v
		}
		if i < t.end && t.buf[i] == t.delimiter {
			i++
			continue
		}
		return t.finish(i)
	}
}

// finish ends the record at i: a line end or the end of the file.
func (t *tokenizer) finish(i int) verdict {
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

// plainField takes what stands from start to the next delimiter or line end, quotes
// included.
func (t *tokenizer) plainField(start, horizon int) (int, verdict) {
	i := t.skipPlain(start, horizon)
	if v := t.within(i, horizon); v != found {
		return i, v
	}
	t.field(start, i, false)
	return i, found
}

// quotedField takes the field whose opening quote stands at open.
func (t *tokenizer) quotedField(open, horizon int) (int, verdict) {
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
			return i, unclosed // this quote opens a field of its own line
		}
		return t.literalField(open, i, horizon)
	}
	if v := t.within(i, horizon); v != found {
		return i, v
	}
	t.field(open+1, closing, escaped)
	return i, found
}

// literalField takes a field with text after its closing quote, from its opening
// quote to the next delimiter or line end; i is where that text begins.
func (t *tokenizer) literalField(open, i, horizon int) (int, verdict) {
	i = t.skipPlain(i, horizon)
	if v := t.within(i, horizon); v != found {
		return i, v
	}
	start, end := trim(t.buf, open, i)
	if t.buf[end-1] == '"' {
		t.field(start+1, end-1, true)
	} else {
		t.field(start, end, false)
	}
	return i, found
}

// closingQuote finds the first quote after open that is not doubled. At the end of the
// window it may yet turn out to be: what looks for the field's end there finds none.
func (t *tokenizer) closingQuote(open, horizon int) (at int, escaped bool, v verdict) {
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

// within tells whether a field that ends at i may be taken: a record that goes on
// beyond the limit can do so only because of a quote.
func (t *tokenizer) within(i, horizon int) verdict {
	switch {
	case i < horizon, i == t.end && t.eof && i-t.pos <= t.limit:
		return found
	case horizon == t.end && !t.eof:
		return short
	}
	return unclosed
}

// ends tells whether b ends a field that is not quoted.
func (t *tokenizer) ends(b byte) bool {
	return b == t.delimiter || b == '\n' || b == '\r'
}

// blank tells whether a space that is no delimiter stands at i.
func (t *tokenizer) blank(i int) bool {
	return t.buf[i] == ' ' || t.buf[i] == '\t' && t.delimiter != '\t'
}
