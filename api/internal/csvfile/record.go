package csvfile

import "bytes"

// span is the position of a field in the window, without quotes and surrounding white space.
type span struct {
	start, end int
	escaped    bool // contains doubled quotes or a CR and must be rewritten before it is read
}

// record is one row in the window.
type record struct {
	fields []span // the first keep fields
	cells  []cell // fields with line breaks
	count  int    // number of all fields
	filled int    // number of the last non-empty field; 0 for a blank row
	stop   int    // end of its text
	next   int    // start of the next record
	lines  int    // number of physical lines
	stray  bool   // a field has text after its closing quote: it may continue on the next line
	open   bool   // such a field has an odd number of quotes: it probably continues
}

// outcome is the result of a search for a record.
type outcome int

const (
	found    outcome = iota
	short            // the window ends before the record
	unclosed         // a quote on the first line is not closed: count is the number of its field, next is the second line
	doubtful         // a cell, field count, may be one, or contain other rows: next is the line after all of them
	overlong         // the physical line is longer than the limit
)

// tokenizer finds records. It does not change the window, so that a malformed record can be read again from
// its second line on.
type tokenizer struct {
	window
	record
	delimiter byte
	keep      int // further fields are only counted
	limit     int // bytes of a physical line and of a record, line end not counted
	looked    int // bytes that scanQuoted has read: a test compares them with the size of the file
}

// scan parses the record at pos. Lines without a quote, nearly all, are split in place.
func (t *tokenizer) scan() outcome {
	t.fields, t.cells, t.count, t.filled, t.lines = t.fields[:0], t.cells[:0], 0, 0, 1
	t.stray, t.open = false, false
	stop, next, ok := t.line()
	t.stop, t.next = stop, next
	switch {
	case stop-t.pos > t.limit:
		return overlong
	case !ok:
		return short
	case bytes.IndexByte(t.buf[t.pos:stop], '"') >= 0:
		return t.scanQuoted()
	}
	start := t.pos
	for {
		i := bytes.IndexByte(t.buf[start:stop], t.delimiter)
		if i < 0 {
			break
		}
		t.field(start, start+i, false)
		start += i + 1
	}
	t.field(start, stop, false)
	return found
}

// field appends the next field of the record.
func (t *tokenizer) field(start, end int, escaped bool) {
	start, end = t.trimmed(start, end)
	if start < end && t.buf[start] == '=' {
		start, end = t.trimmed(literal(t.buf, start, end, escaped))
	}
	t.count++
	if start < end {
		t.filled = t.count
	}
	if t.count <= t.keep {
		t.fields = append(t.fields, span{start, end, escaped})
	}
}

func (t *tokenizer) trimmed(start, end int) (int, int) {
	if start < end && (mayBeSpace(t.buf[start]) || mayBeSpace(t.buf[end-1])) {
		return trim(t.buf, start, end)
	}
	return start, end
}

// literal returns the text of the formula ="text", with which exporters prevent Excel from reading a text as
// a number. In a quoted field its quotes are doubled.
func literal(buf []byte, start, end int, escaped bool) (int, int) {
	quote := `"`
	if escaped {
		quote = `""`
	}
	inside, begins := bytes.CutPrefix(buf[start+1:end], []byte(quote))
	inside, ends := bytes.CutSuffix(inside, []byte(quote))
	if !begins || !ends || bytes.IndexByte(inside, '"') >= 0 {
		return start, end
	}
	return start + 1 + len(quote), end - len(quote)
}

// text returns the content of a field. The first call for a field with doubled quotes or line breaks rewrites
// it in the window.
func (t *tokenizer) text(n int) []byte {
	f := &t.fields[n]
	if f.escaped {
		f.end = f.start + unescape(t.buf[f.start:f.end])
		f.escaped = false
	}
	return t.buf[f.start:f.end:f.end]
}

// unescape replaces "" by one quote, and CR and CRLF by LF, in place, and returns the new length.
func unescape(text []byte) int {
	n := 0
	for i := 0; i < len(text); i++ {
		b := text[i]
		switch {
		case b == '"' && i+1 < len(text) && text[i+1] == '"':
			i++
		case b == '\r':
			b = '\n'
			if i+1 < len(text) && text[i+1] == '\n' {
				i++
			}
		}
		text[n] = b
		n++
	}
	return n
}
