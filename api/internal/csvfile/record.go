package csvfile

import "bytes"

// span is a field's place in the window, without its quotes and the white space
// around it.
type span struct {
	start, end int
	escaped    bool // it holds doubled quotes or a CR and must be rewritten before it is read
}

// record is one row as it stands in the window.
type record struct {
	fields []span // the first keep of them
	count  int    // all of them
	filled int    // number of the last one that is not empty; 0 of a blank row
	stop   int    // where its text ends
	next   int    // where the next record begins
	lines  int    // physical lines it stands on
}

// verdict is how looking for a record ended.
type verdict int

const (
	found    verdict = iota
	short            // the window ends before the record does
	unclosed         // a quote is not closed; next is the line after the one that the record begins on
	overlong         // the physical line is longer than the limit
)

// tokenizer finds records. It changes nothing in the window, so that a record that
// turns out to be broken can be read again from its second line on.
type tokenizer struct {
	window
	record
	delimiter byte
	keep      int // fields beyond it are only counted
	limit     int // bytes of a physical line and of a record, line end not counted
}

// scan looks for the record at pos. A quote decides which way it goes: the lines
// without one, nearly all, are split where they lie.
func (t *tokenizer) scan() verdict {
	t.fields, t.count, t.filled, t.lines = t.fields[:0], 0, 0, 1
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

// field notes the next field of the record.
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

// literal takes the formula ="text", with which exporters keep Excel from reading a text as
// a number, for the text in it. In a quoted field its quotes are doubled.
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

// text is a field as people mean it. The first call for a field that was quoted with
// doubled quotes or line ends in it rewrites it in the window.
func (t *tokenizer) text(n int) []byte {
	f := &t.fields[n]
	if f.escaped {
		f.end = f.start + unescape(t.buf[f.start:f.end])
		f.escaped = false
	}
	return t.buf[f.start:f.end:f.end]
}

// unescape makes "" one quote and CR and CRLF a LF, in place, and returns the length of
// what remains.
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
