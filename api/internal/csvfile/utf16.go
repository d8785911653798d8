package csvfile

import "bytes"

// utf16Checker reads a file as UTF-16 of one byte order to find lone surrogates, which prove that the file is
// damaged or has another encoding.
type utf16Checker struct {
	high int // index of the more significant byte of a pair: 1 for little endian

	pair    [2]byte // the bytes of the current unit
	filled  int
	ends    int  // line ends so far
	afterCR bool // the last unit was a CR
	open    bool // the last unit was the first half of a pair
	broken  int  // line of the first lone surrogate; 0 = none
}

func newUTF16Checker(e Encoding) *utf16Checker {
	u := &utf16Checker{}
	if e == UTF16LE {
		u.high = 1
	}
	return u
}

func (u *utf16Checker) take(p []byte) {
	if u.broken > 0 {
		return
	}
	for _, b := range p {
		u.pair[u.filled] = b
		if u.filled++; u.filled == 2 {
			u.filled = 0
			u.unit(u.pair[u.high], u.pair[1-u.high])
		}
	}
}

func (u *utf16Checker) unit(high, low byte) {
	first, second := high&0xFC == 0xD8, high&0xFC == 0xDC
	if (u.open != second) && u.broken == 0 {
		u.broken = 1 + u.ends
	}
	u.open = first
	cr, lf := high == 0 && low == '\r', high == 0 && low == '\n'
	if cr || lf && !u.afterCR {
		u.ends++
	}
	u.afterCR = cr
}

// loneSurrogate returns the line of the first lone surrogate, as if the file ended here.
func (u *utf16Checker) loneSurrogate() int {
	if u.broken == 0 && u.open {
		return 1 + u.ends
	}
	return u.broken
}

// utf16Checkers returns checkers for the byte orders that are possible for a file beginning with sample. UTF-16 text without
// any NUL has neither a line end nor a delimiter.
func utf16Checkers(sample []byte) map[Encoding]*utf16Checker {
	switch marked := markOf(sample); {
	case marked.wide():
		return map[Encoding]*utf16Checker{marked: newUTF16Checker(marked)}
	case marked == Detect && bytes.IndexByte(sample, 0) >= 0:
		return map[Encoding]*utf16Checker{UTF16LE: newUTF16Checker(UTF16LE), UTF16BE: newUTF16Checker(UTF16BE)}
	}
	return nil
}
