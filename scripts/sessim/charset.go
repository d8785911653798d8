package sessim

import (
	"strings"
	"unicode"
)

// The charsets in which SES may be asked to encode a text. The last character of each
// decides what survives.
func lastRune(charset string) (last rune, known bool) {
	switch strings.ToUpper(charset) {
	case "UTF-8", "UTF8":
		return unicode.MaxRune, true
	case "ISO-8859-1", "LATIN1":
		return unicode.MaxLatin1, true
	case "", "US-ASCII", "ASCII", "7BIT":
		return unicode.MaxASCII, true
	}
	return 0, false
}

// asSent returns the text as a reader would see it. SES encodes a text without a
// charset in 7-bit ASCII, so each other character arrives as a question mark.
func (c *content) asSent() string {
	if c == nil || c.Data == nil {
		return ""
	}
	last, _ := lastRune(c.Charset)
	if last == unicode.MaxRune || isASCII(*c.Data) {
		return *c.Data
	}
	return strings.Map(func(r rune) rune {
		if r > last {
			return '?'
		}
		return r
	}, *c.Data)
}

func isASCII(s string) bool {
	for i := range len(s) {
		if s[i] > unicode.MaxASCII {
			return false
		}
	}
	return true
}
