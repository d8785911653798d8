package htmlcheck

import (
	"bytes"
	"strings"
)

// maxPrefix is how much of an address is judged. The longest scheme and media
// type that decide fit twice; what is longer is neither script nor allowed data.
const maxPrefix = 64

// maxDropped is how many characters that browsers skip may stand in that part.
// Indentation by a template fits; the bound keeps long lists linear.
const maxDropped = 1024

var foundObscured = finding{RuleObscured, "words and addresses must not be broken up by comments, white space or control characters"}

// urlScript judges the address in an attribute.
func urlScript(value string) finding {
	var buf [maxPrefix]byte
	prefix, ok := urlPrefix(buf[:0], value)
	if !ok {
		return foundObscured
	}
	return judgeURL(prefix)
}

// urlListScript judges addresses separated by white space (ping), commas
// (srcset) or semicolons (values). Each is judged beyond its own end, so that a
// line break inside a scheme does not end it.
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

// urlPrefix appends the beginning of an address in lower case, as browsers see
// it: without leading white space and without control characters anywhere. The
// replacement character goes too, for it stands where the source had a NUL,
// which old clients skipped.
func urlPrefix(dst []byte, value string) (prefix []byte, ok bool) {
	const replacement = "\uFFFD"
	dropped := 0
	for i := 0; i < len(value) && len(dst) < maxPrefix; i++ {
		c := value[i]
		switch {
		case c == replacement[0] && strings.HasPrefix(value[i:], replacement):
			i += len(replacement) - 1
			dropped++
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

// judgeURL names the rule that an address with this beginning breaks.
func judgeURL(prefix []byte) finding {
	scheme, rest, ok := bytes.Cut(prefix, []byte(":"))
	if !ok {
		return finding{}
	}
	switch string(scheme) {
	case "javascript", "vbscript", "jscript", "livescript", "mocha":
		return finding{RuleScriptURL, "addresses that run script are not sent"}
	case "data":
		if !allowedData(rest) {
			return finding{RuleDataURL, "data: addresses may hold only PNG, JPEG, GIF, WebP, AVIF or BMP images and fonts"}
		}
	}
	return finding{}
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
