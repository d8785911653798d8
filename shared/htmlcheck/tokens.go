package htmlcheck

import (
	"bytes"
	"strings"

	"golang.org/x/net/html"
	"golang.org/x/net/html/atom"
)

// tokenReading reads markup tag by tag, without building a tree.
type tokenReading struct {
	visit   func(tag string, attrs []html.Attribute, found emit) (stop bool)
	live    bool // read what hides markup from a browser as markup
	foreign bool // the body has svg or math, where even style and title hold markup

	limit int  // stop after this many violations
	lines bool // say in which line a violation is
	line  int  // the token's, less one

	features markupFeatures
	attrs    []html.Attribute
}

// markupFeatures are what the first reading found. They determine which other readings are needed.
type markupFeatures struct {
	starts   int  // start tags of elements that stay open
	tables   int  // tables and templates, above which elements are implied
	foreign  bool // svg or math
	hidden   bool // an element whose content a browser does not read as markup
	noscript bool
}

// read visits every start tag, checks style sheets, and looks into conditional
// comments.
func (r *tokenReading) read(markup string, found emit) (stop bool) {
	if r.lines {
		all := found
		found = func(v *Violation) bool { return all(v.inLine(r.line + 1)) }
	}
	z := html.NewTokenizer(strings.NewReader(markup))
	opened := "" // the start tag right before
	for {
		token := z.Next()
		before := opened
		opened = ""
		next := r.line
		if r.lines {
			next += bytes.Count(z.Raw(), []byte("\n"))
		}
		switch token {
		case html.StartTagToken, html.SelfClosingTagToken:
			opened, stop = r.startTag(z, found)
		case html.TextToken:
			switch before {
			case "style":
				stop = styleSheet(string(z.Text()), found)
			case "script":
				stop = r.dataBlock(string(z.Text()), found)
			}
		case html.CommentToken:
			stop = r.comment(z.Raw(), found)
		case html.ErrorToken:
			return r.unfinished(z.Raw(), found)
		}
		if stop {
			return true
		}
		r.line = next
	}
}

func (r *tokenReading) startTag(z *html.Tokenizer, found emit) (tagName string, stop bool) {
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
	stop = r.visit(tag, r.attrs, found)
	if tag == "script" && !isDataBlock(r.attrs) {
		return "", stop // refused whatever it holds
	}
	return tag, stop
}

func (r *tokenReading) note(tag string) {
	if !isVoid(tag) {
		r.features.starts++
	}
	switch tag {
	case "svg", "math":
		r.features.foreign = true
	case "table", "template":
		r.features.tables++
	case "noscript":
		r.features.noscript, r.features.hidden = true, true
	case "iframe", "noembed", "noframes", "plaintext", "xmp":
		r.features.hidden = true
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
func (r *tokenReading) comment(raw []byte, found emit) (stop bool) {
	body, ok := bytes.CutPrefix(raw, []byte("<!--"))
	if !ok || !isConditional(string(body)) {
		return false
	}
	// A comment cannot contain a whole one, and an unfinished one in it must not
	// hide the rest.
	markup := strings.ReplaceAll(string(body), "<!--", "    ")
	if !hasTag(markup) {
		return false
	}
	both := list{limit: r.limit}
	inner := tokenReading{visit: r.visit, limit: r.limit, lines: r.lines, line: r.line}
	stop = inner.read(markup, both.add)
	if features := inner.features; !stop && (features.hidden || features.foreign) {
		both.nextReading()
		live := tokenReading{visit: r.visit, live: true, foreign: features.foreign, limit: r.limit, lines: r.lines, line: r.line}
		live.read(markup, both.add)
	}
	for _, v := range both.all {
		if found(v.within("conditional comment")) {
			return true
		}
	}
	return false
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
func (r *tokenReading) unfinished(raw []byte, found emit) (stop bool) {
	if len(raw) == 0 {
		return false
	}
	for _, end := range []string{">", `">`, `'>`} {
		z := html.NewTokenizer(strings.NewReader(string(raw) + end))
		switch z.Next() {
		case html.StartTagToken, html.SelfClosingTagToken:
			_, stop = r.startTag(z, found)
			return stop
		}
	}
	return false
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
