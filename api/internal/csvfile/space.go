package csvfile

import (
	"unicode/utf8"

	"email-gateway/shared/email"
)

// mayBeSpace tells whether a byte at the edge of a field can belong to white space: a
// cheap question that spares most fields the next one.
func mayBeSpace(b byte) bool { return b <= ' ' || b >= 0x80 }

// trim leaves out the white space at both ends of buf[start:end].
func trim(buf []byte, start, end int) (int, int) {
	for start < end {
		r, size := utf8.DecodeRune(buf[start:end])
		if !isSpace(r) {
			break
		}
		start += size
	}
	for start < end {
		r, size := utf8.DecodeLastRune(buf[start:end])
		if !isSpace(r) {
			break
		}
		end -= size
	}
	return start, end
}

// isSpace is white space as people see it, that is: do not see it. Copied from a web
// page come NBSP and the zero-width ones; U+001A ends the files of DOS programs.
func isSpace(r rune) bool { return r == 0x1a || email.IsInvisible(r) }
