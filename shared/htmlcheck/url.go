package htmlcheck

import (
	"bytes"
	"unicode"
	"unicode/utf8"
)

// maxPrefix is how much of an address is checked. The longest relevant scheme and media type fit
// twice; a longer one is neither rejected nor allowed data.
const maxPrefix = 64

// maxDropped is how many characters that browsers skip that part may have.
// Indentation by a template fits; the bound keeps long lists linear.
const maxDropped = 1024

var foundObscured = finding{RuleObscured, "words and addresses must not be broken up by comments, white space or control characters"}

// urlScript checks the address in an attribute.
func urlScript(value string) finding {
	var buf [maxPrefix]byte
	prefix, ok := urlPrefix(buf[:0], value)
	if !ok {
		return foundObscured
	}
	return checkURLPrefix(prefix)
}

// urlListScript checks addresses separated by white space (ping), commas (srcset) or semicolons
// (values). Each is checked beyond its own end, so that a line break inside a scheme does not end
// it.
func urlListScript(value string) finding {
	between := true
	for i := range len(value) {
		c := value[i]
		if c <= ' ' || c == ',' || c == ';' {
			between = true
			continue
		}
		if !between {
			continue
		}
		between = false
		if f := urlScript(value[i:]); f.rule != "" {
			return f
		}
	}
	return finding{}
}

// urlPrefix appends the beginning of an address in lower case, as the most
// forgiving client sees it: without leading white space, and without control
// characters, invisible characters and white space beyond ASCII anywhere. The
// replacement character goes too, because it replaces a NUL of the source, which
// old clients skipped.
func urlPrefix(dst []byte, value string) (prefix []byte, ok bool) {
	dropped := 0
	for i := 0; i < len(value) && len(dst) < maxPrefix; i++ {
		c := value[i]
		switch {
		case c >= utf8.RuneSelf:
			r, size := utf8.DecodeRuneInString(value[i:])
			if invisible(r) {
				dropped++
			} else {
				dst = append(dst, value[i:i+size]...)
			}
			i += size - 1
		case c < ' ' || c == 0x7F || c == ' ' && len(dst) == 0:
			dropped++
		case 'A' <= c && c <= 'Z':
			dst = append(dst, c|0x20)
		default:
			dst = append(dst, c)
		}
		if dropped > maxDropped {
			return nil, false
		}
	}
	return dst, true
}

// invisible reports whether some client skips a character beyond ASCII in an address.
func invisible(r rune) bool {
	return r == utf8.RuneError || unicode.IsSpace(r) || unicode.Is(unicode.Cf, r) || unicode.IsControl(r)
}

var (
	foundScript = finding{RuleScriptURL, "addresses that run script are not allowed"}
	foundLocal  = finding{RuleLocalURL, "addresses that open files or programs of the reader's computer, or a file server, are not allowed"}
)

// checkURLPrefix returns the rule that an address with this beginning violates.
func checkURLPrefix(prefix []byte) finding {
	for {
		if isShare(prefix) {
			return foundLocal
		}
		scheme, rest, ok := bytes.Cut(prefix, []byte(":"))
		if !ok {
			return finding{}
		}
		// Windows takes "file :" for "file:".
		scheme = bytes.ReplaceAll(scheme, []byte(" "), nil)
		rest = bytes.TrimLeft(rest, " ")
		switch kindOf(string(scheme)) {
		case schemeScript:
			return foundScript
		case schemeLocal:
			return foundLocal
		case schemeData:
			if !allowedData(rest) {
				return finding{RuleDataURL, "data: addresses may contain only PNG, JPEG, GIF, WebP, AVIF or BMP images and fonts"}
			}
			return finding{}
		case schemeWrapper:
			prefix = rest
		default:
			return finding{}
		}
	}
}

// isShare reports whether an address begins like \\server\share. Windows takes a
// slash for either backslash, opens it as a file and logs in to that server with the
// reader's password hash. Two slashes are an address without its scheme, which real
// templates use.
func isShare(address []byte) bool {
	n := 0
	for n < len(address) && (address[n] == '/' || address[n] == '\\') {
		n++
	}
	// After a quote it is the rest of a doubled escape.
	named := n < len(address) && address[n] != '"' && address[n] != '\''
	return n >= 2 && named && bytes.IndexByte(address[:n], '\\') >= 0
}

// schemeKind is what a client does with an address of a scheme.
type schemeKind int

const (
	schemeOther   schemeKind = iota
	schemeScript             // runs script
	schemeLocal              // opens a file or starts a program that is not the browser
	schemeData               // holds a document
	schemeWrapper            // is followed by the address that counts
)

// kindOf returns the kind of a scheme in lower case. Schemes of programs that take a file name or a
// command are rejected, as attacks have used each of them; those of chats, shops and calls are not.
func kindOf(scheme string) schemeKind {
	switch scheme {
	case "javascript", "vbscript", "jscript", "livescript", "mocha", "mhtml",
		"javascript.encode", "vbscript.encode", "jscript.encode", "x-javascript", "vbs", "wyciwyg":
		return schemeScript
	case "file", "filesystem", "smb", "cifs", "afp", "nfs", "knownfolder", "shell", "res",
		"search", "search-ms", "ms-msdt", "ms-search", "ms-officecmd", "ms-appinstaller", "ms-cxh", "ms-cxh-full",
		"ms-its", "ms-itss", "its", "mk", "hcp", "ms-help", "ms-settings", "ms-rd", "rdp", "ldap", "ldaps",
		"ms-word", "ms-excel", "ms-powerpoint", "ms-visio", "ms-access", "ms-project", "ms-publisher", "ms-spd", "ms-infopath",
		"ms-photos", "ms-screensketch", "ms-gamingoverlay", "ms-gamebar", "ms-quick-assist", "ms-availablenetworks",
		"windowsdefender", "wsreset", "telnet", "rlogin", "tn3270", "jnlp", "jnlps":
		return schemeLocal
	case "data":
		return schemeData
	case "url", "view-source", "feed", "jar", "blob":
		return schemeWrapper
	}
	return schemeOther
}

// allowedData reports whether the media type is one that cannot hold script.
// SVG can.
func allowedData(rest []byte) bool {
	if i := bytes.IndexAny(rest, ";,"); i >= 0 {
		rest = rest[:i]
	}
	switch string(bytes.TrimSpace(rest)) {
	case "image/png", "image/jpeg", "image/jpg", "image/gif", "image/webp", "image/avif", "image/bmp",
		"font/woff", "font/woff2", "font/ttf", "font/otf":
		return true
	}
	return false
}
