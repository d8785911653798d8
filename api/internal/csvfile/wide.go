package csvfile

import "bytes"

// wideText reads a file as UTF-16 of one byte order to find lone surrogates, which prove that the file is
// damaged or has another encoding.
type wideText struct {
	high int // index of the more significant byte of a pair: 1 for little endian

	pair    [2]byte // the bytes of the current unit
	filled  int
	ends    int  // line ends so far
	afterCR bool // the last unit was a CR
	open    bool // the last unit was the first half of a pair
	broken  int  // line of the first lone surrogate; 0 = none
}

func newWideText(e Encoding) *wideText {
	w := &wideText{}
	if e == UTF16LE {
		w.high = 1
	}
	return w
}

func (w *wideText) take(p []byte) {
	if w.broken > 0 {
		return
	}
	for _, b := range p {
		w.pair[w.filled] = b
		if w.filled++; w.filled == 2 {
			w.filled = 0
			w.unit(w.pair[w.high], w.pair[1-w.high])
		}
	}
}

func (w *wideText) unit(high, low byte) {
	first, second := high&0xFC == 0xD8, high&0xFC == 0xDC
	if (w.open != second) && w.broken == 0 {
		w.broken = 1 + w.ends
	}
	w.open = first
	cr, lf := high == 0 && low == '\r', high == 0 && low == '\n'
	if cr || lf && !w.afterCR {
		w.ends++
	}
	w.afterCR = cr
}

// lone returns the line of the first lone surrogate, as if the file ended here.
func (w *wideText) lone() int {
	if w.broken == 0 && w.open {
		return 1 + w.ends
	}
	return w.broken
}

// wideTexts returns the byte orders that are possible for a file beginning with sample. UTF-16 text without
// any NUL has neither a line end nor a delimiter.
func wideTexts(sample []byte) map[Encoding]*wideText {
	switch marked := markOf(sample); {
	case marked.wide():
		return map[Encoding]*wideText{marked: newWideText(marked)}
	case marked == Detect && bytes.IndexByte(sample, 0) >= 0:
		return map[Encoding]*wideText{UTF16LE: newWideText(UTF16LE), UTF16BE: newWideText(UTF16BE)}
	}
	return nil
}
