package plaintext

import (
	"fmt"
	"strings"
	"unicode"
)

// isAddress reports whether the address of a link is of use outside of the html.
func isAddress(href string) bool {
	scheme, _, found := strings.Cut(href, ":")
	switch strings.ToLower(scheme) {
	case "http", "https", "mailto", "tel":
		return found
	}
	return false
}

// withoutLines removes what a browser removes from the address of a link: an editor may have wrapped it.
func withoutLines(href string) string {
	return strings.Map(func(r rune) rune {
		if r == '\t' || r == '\r' || r == '\n' {
			return -1
		}
		return r
	}, href)
}

// encoded encodes the characters that would end an address in a text, as a browser does.
func encoded(href string) string {
	var out strings.Builder
	for _, r := range href {
		if !isSpace(r) && !isFiller(r) && !unicode.IsControl(r) && r != '<' && r != '>' {
			out.WriteRune(r)
			continue
		}
		for _, b := range []byte(string(r)) {
			fmt.Fprintf(&out, "%%%02X", b)
		}
	}
	return out.String()
}

// endLink writes the address of the open link, unless its text is the address.
func (w *writer) endLink() {
	href := w.href
	w.href = ""
	if href == "" {
		return
	}
	_, bare, _ := strings.Cut(href, ":")
	shown := strings.TrimSpace(w.out.String()[w.from:])
	for _, same := range []string{href, bare, strings.TrimPrefix(bare, "//"), strings.TrimSuffix(strings.TrimPrefix(bare, "//"), "/")} {
		if shown == same {
			return
		}
	}
	if shown != "" {
		w.space, w.breaks = true, 0
	}
	w.write("<" + encoded(href) + ">")
}
