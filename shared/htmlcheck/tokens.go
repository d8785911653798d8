package htmlcheck

import (
	"bytes"
	"strings"

	"golang.org/x/net/html"
	"golang.org/x/net/html/atom"
)

// tokenReading reads markup tag by tag, without building a tree.
type tokenReading struct {
	visit   func(tag string, attrs []html.Attribute) *Violation
	live    bool // read what hides markup from a browser as markup
	foreign bool // the body has svg or math, where even style and title hold markup

	found survey
	attrs []html.Attribute
}

// survey is what the first reading learns about the need for others.
type survey struct {
	starts   int  // start tags of elements that stay open
	tables   int  // tables and templates, above which elements are implied
	foreign  bool // svg or math
	hidden   bool // an element whose content a browser does not read as markup
	noscript bool
}

// read visits every start tag, checks style sheets, and looks into conditional
// comments.
func (r *tokenReading) read(markup string) *Violation {
	z := html.NewTokenizer(strings.NewReader(markup))
	inStyle := false
	for {
		token := z.Next()
		styleText := inStyle && token == html.TextToken
		inStyle = false
		var v *Violation
		switch token {
		case html.StartTagToken, html.SelfClosingTagToken:
			var tag string
			tag, v = r.startTag(z)
			inStyle = tag == "style"
		case html.TextToken:
			if styleText {
				v = styleSheet(string(z.Text()))
			}
		case html.CommentToken:
			v = r.comment(z.Raw())
		case html.ErrorToken:
			return r.unfinished(z.Raw())
		}
		if v != nil {
			return v
		}
	}
}

func (r *tokenReading) startTag(z *html.Tokenizer) (string, *Violation) {
	name, more := z.TagName()
	tag := atom.String(name)
	r.attrs = r.attrs[:0]
	for more {
		var key, value []byte
		key, value, more = z.TagAttr()
		r.attrs = append(r.attrs, html.Attribute{Key: atom.String(key), Val: string(value)})
	}
	r.note(tag)
	if r.live && r.opens(tag) {
		z.NextIsNotRawText()
	}
	return tag, r.visit(tag, r.attrs)
}

func (r *tokenReading) note(tag string) {
	if !isVoid(tag) {
		r.found.starts++
	}
	switch tag {
	case "svg", "math":
		r.found.foreign = true
	case "table", "template":
		r.found.tables++
	case "noscript":
		r.found.noscript, r.found.hidden = true, true
	case "iframe", "noembed", "noframes", "plaintext", "xmp":
		r.found.hidden = true
	}
}

// opens reports whether some client reads the content of the element as markup
// although a browser with scripting does not. Clients know style, title and
// textarea; only inside svg and math these hold markup.
func (r *tokenReading) opens(tag string) bool {
	switch tag {
	case "noscript", "iframe", "noembed", "noframes", "plaintext", "xmp":
		return true
	case "style", "title", "textarea":
		return r.foreign
	}
	return false
}

// comment looks into a conditional comment, whose content is live in Outlook.
// Other comments are live nowhere.
func (r *tokenReading) comment(raw []byte) *Violation {
	body, ok := bytes.CutPrefix(raw, []byte("<!--"))
	if !ok || !isConditional(string(body)) {
		return nil
	}
	// A comment cannot contain a whole one, and an unfinished one in it must not
	// hide the rest.
	markup := strings.ReplaceAll(string(body), "<!--", "    ")
	if !hasTag(markup) {
		return nil
	}
	inner := tokenReading{visit: r.visit}
	v := inner.read(markup)
	if found := inner.found; v == nil && (found.hidden || found.foreign) {
		live := tokenReading{visit: r.visit, live: true, foreign: found.foreign}
		v = live.read(markup)
	}
	if v != nil {
		return v.within("conditional comment")
	}
	return nil
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

// unfinished inspects a last tag that lacks its ">". Parsers drop it, but it
// comes alive when a client puts a footer or a quoted reply behind the body.
func (r *tokenReading) unfinished(raw []byte) *Violation {
	if len(raw) == 0 {
		return nil
	}
	for _, end := range []string{">", `">`, `'>`} {
		z := html.NewTokenizer(strings.NewReader(string(raw) + end))
		switch z.Next() {
		case html.StartTagToken, html.SelfClosingTagToken:
			_, v := r.startTag(z)
			return v
		}
	}
	return nil
}

// isVoid reports whether an element never stays open.
func isVoid(tag string) bool {
	switch tag {
	case "area", "base", "basefont", "bgsound", "br", "embed", "frame", "hr", "image", "img", "input",
		"keygen", "link", "meta", "param", "source", "track", "wbr":
		return true
	}
	return false
}
