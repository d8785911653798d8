package mailmerge

import (
	"strings"

	"golang.org/x/net/html"
)

// isRaw reports whether a browser reads the content of an element as text and not as markup. Other
// clients may differ: mail clients run no script, so noscript is markup to them, and inside svg
// style and title are.
func isRaw(element string) bool {
	switch element {
	case "iframe", "noembed", "noframes", "noscript", "plaintext", "script", "style", "textarea", "title", "xmp":
		return true
	}
	return false
}

// selfContained reports whether a client that reads content as markup is in the same state after it as a
// client that reads it as text: outside of tags, comments and elements of raw text. Otherwise a
// quote opened in the content could close after a field that appears to be in an attribute.
//
// Elements of raw text inside the content must be self-contained too. Their nesting is bounded by
// the number of such elements, because the content of one cannot contain its own end tag, and one
// that is not closed is not self-contained.
func selfContained(content string) bool {
	if strings.IndexByte(content, '<') < 0 {
		return true
	}
	z := html.NewTokenizer(strings.NewReader(content + "<end>"))
	end, raw := 0, false
	for {
		kind := z.Next()
		start := end
		end += len(z.Raw())
		if start == len(content) {
			return kind == html.StartTagToken
		}
		if end > len(content) {
			return false
		}
		wasRaw := raw
		raw = false
		switch kind {
		case html.TextToken:
			if wasRaw && !selfContained(content[start:end]) {
				return false
			}
		case html.StartTagToken, html.SelfClosingTagToken:
			name, _ := z.TagName()
			raw = isRaw(string(name))
		case html.CommentToken:
			if !commentSelfContained(content[start:end]) {
				return false
			}
		}
	}
}

// commentSelfContained is selfContained for a conditional comment, whose content is live in
// Outlook. Other comments are live nowhere.
func commentSelfContained(comment string) bool {
	body, ok := strings.CutPrefix(comment, "<!--")
	if !ok || !isConditional(body) {
		return true
	}
	return selfContained(strings.ReplaceAll(body, "<!--", "    "))
}

// isConditional reports whether a comment contains "[if", however spaced.
func isConditional(comment string) bool {
	for {
		i := strings.IndexByte(comment, '[')
		if i < 0 {
			return false
		}
		comment = strings.TrimLeft(comment[i+1:], " \t\r\n\f")
		if len(comment) >= 2 && strings.EqualFold(comment[:2], "if") {
			return true
		}
	}
}
