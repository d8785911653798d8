package csvfile

import (
	"unicode/utf8"

	"email-gateway/shared/email"
)

// mayBeSpace is a cheap check whether a byte at the edge of a field can belong to white space; it avoids the
// slower check for most fields.
func mayBeSpace(b byte) bool { return b <= ' ' || b >= 0x80 }

// trim removes white space at both ends of buf[start:end].
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

// isSpace reports whether a character is invisible: white space, NBSP and zero-width characters from web
// pages, and U+001A, which ends the files of DOS programs.
func isSpace(r rune) bool { return r == 0x1a || email.IsInvisible(r) }
