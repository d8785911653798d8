package csvfile

import (
	"bytes"
	"errors"
	"io"
)

// window is the part of a file, already UTF-8, that is in memory: buf[pos:end] is unread. It is larger than
// the longest row.
type window struct {
	from     io.Reader
	buf      []byte
	pos, end int
	err      error // error of from
	eof      bool  // err is the end of the file
	lf       int   // buf[pos:lf] contains no LF: avoids searching it again for each row
}

// fill makes room and reads until the window is full or the file ends. It overwrites the rows read so far. It
// fails if neither is possible.
func (w *window) fill() error {
	if w.err != nil {
		return w.err
	}
	w.end = copy(w.buf, w.buf[w.pos:w.end])
	w.lf = max(w.lf-w.pos, 0)
	w.pos = 0
	if w.end == len(w.buf) {
		return io.ErrShortBuffer
	}
	for idle := 0; w.end < len(w.buf) && w.err == nil; {
		n, err := w.from.Read(w.buf[w.end:])
		w.end += n
		w.err, w.eof = err, errors.Is(err, io.EOF)
		if idle++; n > 0 {
			idle = 0
		}
		if idle == 100 && err == nil { // like bufio: give up after a hundred empty reads
			w.err = io.ErrNoProgress
		}
	}
	return nil
}

// line finds the end of the physical line at pos: buf[pos:stop] is the line, next is the start of the next
// one. ok is false if the window ends before that is known, but the file does not.
func (w *window) line() (stop, next int, ok bool) {
	from := max(w.lf, w.pos)
	if i := bytes.IndexByte(w.buf[from:w.end], '\n'); i >= 0 {
		w.lf = from + i
	} else {
		w.lf = w.end
	}
	if i := bytes.IndexByte(w.buf[w.pos:w.lf], '\r'); i >= 0 {
		stop = w.pos + i
		next = w.after(stop)
		return stop, next, stop+1 < w.end || w.eof
	}
	if w.lf < w.end {
		return w.lf, w.lf + 1, true
	}
	return w.end, w.end, w.eof
}

// after returns the start of the line after the line end at i.
func (w *window) after(i int) int {
	if w.buf[i] == '\r' && i+1 < w.end && w.buf[i+1] == '\n' {
		return i + 2
	}
	return min(i+1, w.end)
}

// countLines counts the line ends in text.
func countLines(text []byte) int {
	n := 0
	for i, b := range text {
		if b == '\n' && (i == 0 || text[i-1] != '\r') || b == '\r' {
			n++
		}
	}
	return n
}
