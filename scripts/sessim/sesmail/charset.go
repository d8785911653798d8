package sesmail

import (
	"strings"
	"unicode"
)

// The charsets that SES accepts for a text, with the last character that each can encode.
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

// asSent returns the text as a reader sees it. SES encodes a text without a charset in 7-bit ASCII,
// so other characters arrive as question marks.
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
