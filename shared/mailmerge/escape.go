package mailmerge

import "strings"

// reference is the character reference for a byte, or nothing for a byte that needs none. The same
// set serves text and attributes, so that a value is inert wherever a client places it. The
// backtick quotes attributes in old Internet Explorers; a literal line break could merge with one
// of the template's.
func reference(c byte) string {
	switch c {
	case '&':
		return "&amp;"
	case '<':
		return "&lt;"
	case '>':
		return "&gt;"
	case '"':
		return "&#34;"
	case '\'':
		return "&#39;"
	case '`':
		return "&#96;"
	case '\n':
		return "&#10;"
	case '\r':
		return "&#13;"
	}
	return ""
}

func appendMarkup(dst []byte, value string) []byte {
	done := 0
	for i := range len(value) {
		if ref := reference(value[i]); ref != "" {
			dst = append(dst, value[done:i]...)
			dst = append(dst, ref...)
			done = i + 1
		}
	}
	return append(dst, value[done:]...)
}

func sizeMarkup(value string) int {
	n := len(value)
	for i := range len(value) {
		if ref := reference(value[i]); ref != "" {
			n += len(ref) - 1
		}
	}
	return n
}

// separates reports whether a byte ends an address in some list of addresses: srcset and archive
// use commas, values semicolons, ping white space.
func separates(c byte) bool { return c <= ' ' || c == ',' || c == ';' }

// appendListed writes an address of a list, in which separators are
// percent-encoded.
func appendListed(dst []byte, address string) []byte {
	for i := range len(address) {
		switch c := address[i]; {
		case separates(c):
			dst = appendPercent(dst, c)
		default:
			dst = appendMarkup(dst, address[i:i+1])
		}
	}
	return dst
}

func sizeListed(address string) int {
	n := 0
	for i := range len(address) {
		if separates(address[i]) {
			n += len("%20")
			continue
		}
		n += sizeMarkup(address[i : i+1])
	}
	return n
}

// appendComponent percent-encodes all but unreserved characters and those in kept. Its output needs
// no character references.
func appendComponent(dst []byte, value, kept string) []byte {
	for i := range len(value) {
		if c := value[i]; isUnreserved(c) || strings.IndexByte(kept, c) >= 0 {
			dst = append(dst, c)
		} else {
			dst = appendPercent(dst, c)
		}
	}
	return dst
}

func sizeComponent(value, kept string) int {
	n := len(value)
	for i := range len(value) {
		if c := value[i]; !isUnreserved(c) && strings.IndexByte(kept, c) < 0 {
			n += len("%20") - 1
		}
	}
	return n
}

func appendPercent(dst []byte, c byte) []byte {
	const digits = "0123456789ABCDEF"
	return append(dst, '%', digits[c>>4], digits[c&0xF])
}

// isUnreserved is the set of RFC 3986, 2.3.
func isUnreserved(c byte) bool {
	return isAlphanumeric(c) || c == '-' || c == '.' || c == '_' || c == '~'
}

func isAlphanumeric(c byte) bool {
	return '0' <= c && c <= '9' || 'a' <= c|0x20 && c|0x20 <= 'z'
}

// trimAddress removes what browsers ignore around an address.
func trimAddress(value string) string {
	return strings.TrimFunc(value, func(r rune) bool { return r <= ' ' })
}

// isAddress accepts an absolute address of a scheme that only opens a page, a message or a call.
// Browsers drop line breaks and tabs even inside the scheme, so the value must not have any.
func isAddress(value string) bool {
	if strings.ContainsFunc(value, func(r rune) bool { return r < ' ' || r == 0x7F }) {
		return false
	}
	_, rest, ok := cutScheme(value)
	return ok && rest != "" && strings.IndexByte(" ?#", rest[0]) < 0
}

// isHost accepts labels of letters, digits and hyphens.
func isHost(value string) bool {
	for label := range strings.SplitSeq(value, ".") {
		if label == "" || strings.ContainsFunc(label, func(r rune) bool {
			return r > 0x7F || !isAlphanumeric(byte(r)) && r != '-'
		}) {
			return false
		}
	}
	return true
}
