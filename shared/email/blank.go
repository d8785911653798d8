package email

import (
	"bytes"
	"strings"
	"unicode"
)

// IsInvisible reports whether a character is never visible: white space of any kind, and the
// zero-width characters, fillers and direction marks that are copied from web pages.
func IsInvisible(r rune) bool {
	switch {
	case r < 0x80:
		return r == ' ' || r >= '\t' && r <= '\r'
	case unicode.IsSpace(r), r >= 0x200b && r <= 0x200f, r >= 0x202a && r <= 0x202e, r >= 0x2060 && r <= 0x2069:
		return true
	}
	switch r {
	case 0xad, 0x34f, 0x61c, 0x115f, 0x1160, 0x17b4, 0x17b5, 0x180e, 0x2800, 0x3164, 0xfeff, 0xffa0:
		return true
	}
	return false
}

// IsBlank reports whether a text has no visible character. In a request such a field counts as
// omitted: "   " is not an externalId that two people could share. Variation selectors and tags
// modify the character before them and are invisible alone.
func IsBlank(text string) bool {
	return !strings.ContainsFunc(text, isVisible)
}

func isVisible(r rune) bool {
	return !IsInvisible(r) && (r < 0xfe00 || r > 0xfe0f) && (r < 0xe0000 || r > 0xe01ef)
}

// Part is a subject, html or text as it is sent: "" if it is blank, so that it counts as absent, and without the byte
// order mark of a file that it was copied from.
func Part(text string) string {
	if IsBlank(text) {
		return ""
	}
	return strings.TrimLeft(text, byteOrderMark)
}

// PartBytes is Part for what is rendered into a buffer.
func PartBytes(text []byte) []byte {
	if !bytes.ContainsFunc(text, isVisible) {
		return nil
	}
	return bytes.TrimLeft(text, byteOrderMark)
}

const byteOrderMark = "\ufeff"
