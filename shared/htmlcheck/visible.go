package htmlcheck

import (
	"io"
	"strings"

	"golang.org/x/net/html"

	"email-gateway/shared/email"
)

// HasVisibleContent reports whether a reader of the body would see anything: a text with more than white space
// and zero-width characters, or an element that is visible by itself. Comments, empty elements,
// title and style are not visible.
func HasVisibleContent(body string) bool {
	z := html.NewTokenizer(strings.NewReader(body))
	hidden := "" // the element whose text is not shown
	for {
		switch z.Next() {
		case html.ErrorToken:
			return z.Err() != io.EOF //nolint:errorlint // the tokenizer returns it bare; a text that it cannot read is for the checker
		case html.TextToken:
			if hidden == "" && !email.IsBlank(html.UnescapeString(string(z.Raw()))) {
				return true
			}
		case html.EndTagToken:
			if name, _ := z.TagName(); string(name) == hidden {
				hidden = ""
			}
		case html.StartTagToken, html.SelfClosingTagToken:
			name, more := z.TagName()
			switch element := string(name); {
			case showsItself(element), more && hasBackground(z):
				return true
			case hidden == "" && hides(element):
				hidden = element
			}
		}
	}
}

// showsItself reports whether an element is visible without text. Those of VML have a colon.
func showsItself(element string) bool {
	switch element {
	case "img", "image", "svg", "picture", "video", "audio", "canvas", "object", "embed", "iframe", "hr", "input", "select", "button", "textarea", "meter", "progress", "math":
		return true
	}
	return strings.HasPrefix(element, "v:")
}

// hides reports whether an element's text is invisible. head is not included: an element with text
// is no longer in it, whether it was closed or not.
func hides(element string) bool {
	switch element {
	case "title", "style", "script", "template":
		return true
	}
	return false
}

func hasBackground(z *html.Tokenizer) bool {
	for more := true; more; {
		var key, value []byte
		key, value, more = z.TagAttr()
		name := string(key)
		if name == "background" && len(value) > 0 || name == "style" && strings.Contains(strings.ToLower(string(value)), "url(") {
			return true
		}
	}
	return false
}
