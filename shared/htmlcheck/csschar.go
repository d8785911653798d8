package htmlcheck

import (
	"strings"
	"unicode/utf8"
)

// nothing represents an escaped line break and the end of the text.
const nothing rune = -1

// fullwidthLead is the first byte of the fullwidth forms of ASCII.
const fullwidthLead = 0xEF

// char reads the character at i, escape resolved and lower-cased, and returns
// where the next one begins; at the end of the text that is i itself.
func (s *cssScanner) char(i int) (c rune, next int) {
	if i >= len(s.text) {
		return nothing, i
	}
	b := s.text[i]
	switch {
	case b == '\\':
		return s.escape(i + 1)
	case b < utf8.RuneSelf:
		return lower(rune(b)), i + 1
	}
	c, size := utf8.DecodeRuneInString(s.text[i:])
	return lower(c), i + size
}

// escape reads what follows a backslash: up to six hexadecimal digits with one
// optional white space behind them, a line break, or any other character.
func (s *cssScanner) escape(i int) (c rune, next int) {
	digits := 0
	for digits < 6 && i+digits < len(s.text) {
		d := hexDigit(s.text[i+digits])
		if d < 0 {
			break
		}
		c = c<<4 | d
		digits++
	}
	next = i + digits
	if digits > 0 {
		if c == 0 || !utf8.ValidRune(c) {
			c = utf8.RuneError
		}
		return lower(c), next + spaceLen(s.text[next:])
	}
	if n := spaceLen(s.text[i:]); n > 0 && s.text[i] != ' ' && s.text[i] != '\t' {
		return nothing, i + n
	}
	if i == len(s.text) {
		return nothing, i
	}
	c, size := utf8.DecodeRuneInString(s.text[i:])
	return lower(c), i + size
}

// spaceLen is the length of the one white space text begins with; CR LF is one.
func spaceLen(text string) int {
	switch {
	case text == "":
		return 0
	case strings.HasPrefix(text, "\r\n"):
		return 2
	case strings.IndexByte(" \t\r\n\f", text[0]) >= 0:
		return 1
	}
	return 0
}

func hexDigit(b byte) rune {
	switch {
	case '0' <= b && b <= '9':
		return rune(b - '0')
	case 'a' <= b|0x20 && b|0x20 <= 'f':
		return rune(b|0x20-'a') + 10
	}
	return -1
}

// lower maps a letter to lower-case ASCII, and so the look-alikes that IE's
// CSS parser accepts in keywords: fullwidth forms and a few small capitals.
func lower(c rune) rune {
	switch {
	case 0xFF01 <= c && c <= 0xFF5E:
		return lower(c - 0xFF01 + '!')
	case 'A' <= c && c <= 'Z':
		return c | 0x20
	case c < utf8.RuneSelf:
		return c
	}
	switch c {
	case 'ɪ':
		return 'i'
	case 'ɴ':
		return 'n'
	case 'ʀ':
		return 'r'
	case 'ſ':
		return 's'
	}
	return c
}
