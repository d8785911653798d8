package plaintext

import (
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"email-gateway/shared/email"
)

// maxListDepth bounds the indentation of nested lists.
const maxListDepth = 8

// writer builds the text line by line. Breaks and prefixes are written with the next visible text,
// so that empty elements leave nothing behind.
type writer struct {
	out    strings.Builder
	limit  int
	full   bool // the text is longer than limit
	breaks int  // line ends before the next text
	space  bool // white space before the next text
	cell   bool // a table cell begins before the next text
	prefix string
	pre    int    // nesting of pre
	indent string // spaces of the current line of a pre before the next text

	lists []list
	deep  int // lists beyond maxListDepth

	href string // of the open link; "" = none
	from int    // where its text begins

	hidden hidden
}

// list is an open list; next is the number of an ordered one's next item, 0 = it is not ordered.
type list struct{ next int }

func (w *writer) skipping() bool { return w.hidden.name != "" }

func (w *writer) start(e element) {
	if w.hidden.start(e.name) {
		return
	}
	switch {
	case isVoid(e.name) && e.hidden:
		return
	case e.hidden, e.name == "title", e.name == "style", e.name == "script", e.name == "template", e.name == "iframe":
		w.hidden = hidden{name: e.name, depth: 1}
		return
	}
	switch e.name {
	case "br":
		w.breaks, w.indent = min(w.breaks+1, 2), ""
	case "hr":
		w.block(2)
		w.write("---")
		w.block(2)
	case "img":
		w.write(e.alt)
	case "a":
		w.endLink()
		if href := withoutLines(e.href); isAddress(href) {
			w.href, w.from = href, w.out.Len()
		}
	case "li":
		w.item()
	case "ul", "ol":
		w.openList(e.name == "ol")
	case "td", "th":
		w.cell = true
	case "tr":
		w.block(1)
	case "pre":
		w.block(2)
		w.pre++
	default:
		w.block(breaksOf(e.name))
	}
}

func (w *writer) end(name string) {
	if w.hidden.end(name) {
		return
	}
	switch name {
	case "a":
		w.endLink()
	case "ul", "ol":
		w.closeList()
	case "tr":
		w.block(1)
	case "pre":
		w.block(2)
		w.pre = max(w.pre-1, 0)
	default:
		w.block(breaksOf(name))
	}
}

// breaksOf returns how many line ends separate an element from its neighbours.
func breaksOf(name string) int {
	switch name {
	case "p", "h1", "h2", "h3", "h4", "h5", "h6", "table", "blockquote", "dl":
		return 2
	case "div", "section", "article", "header", "footer", "main", "nav", "aside", "address", "figure", "figcaption", "center", "form", "fieldset", "dt", "dd",
		"caption", "body", "li":
		return 1
	}
	return 0
}

func (w *writer) block(breaks int) {
	if w.prefix != "" { // at the beginning of an item
		breaks = min(breaks, 1)
	}
	w.breaks = max(w.breaks, breaks)
	if breaks > 0 {
		w.cell, w.indent = false, ""
	}
}

func (w *writer) openList(ordered bool) {
	if len(w.lists) == 0 {
		w.block(2)
	} else {
		w.block(1)
	}
	if len(w.lists) == maxListDepth {
		w.deep++
		return
	}
	l := list{}
	if ordered {
		l.next = 1
	}
	w.lists = append(w.lists, l)
}

func (w *writer) closeList() {
	switch {
	case w.deep > 0:
		w.deep--
	case len(w.lists) > 0:
		w.lists = w.lists[:len(w.lists)-1]
	}
	w.prefix = ""
	if len(w.lists) == 0 {
		w.block(2)
	}
}

func (w *writer) item() {
	w.block(1)
	w.prefix = "- "
	if len(w.lists) == 0 {
		return
	}
	l := &w.lists[len(w.lists)-1]
	if l.next > 0 {
		w.prefix = strconv.Itoa(l.next) + ". "
		l.next++
	}
	w.prefix = strings.Repeat("  ", len(w.lists)-1) + w.prefix
}

// write appends a text, with white space collapsed outside of pre.
func (w *writer) write(text string) {
	if w.pre > 0 {
		w.writeLines(text)
		return
	}
	begin := -1
	for i, r := range text {
		switch {
		case isSpace(r):
			if begin >= 0 {
				w.word(text[begin:i])
				begin = -1
			}
			w.space = true
		case begin < 0:
			begin = i
		}
		if w.full {
			return
		}
	}
	if begin >= 0 {
		w.word(text[begin:])
	}
}

// maxIndent limits the spaces between two texts of a line of a pre (bytes).
const maxIndent = 200

// writeLines appends preformatted text. A line may continue in the next text.
func (w *writer) writeLines(text string) {
	for i, line := range strings.Split(strings.ReplaceAll(text, "\r\n", "\n"), "\n") {
		if i > 0 {
			w.breaks, w.indent = min(w.breaks+1, 2), ""
		}
		shown := strings.TrimRightFunc(line, unicode.IsSpace)
		if !email.IsBlank(shown) {
			w.put(w.indent + shown)
			line = line[len(shown):]
			w.indent = ""
		}
		w.indent += firstBytes(line, maxIndent-len(w.indent))
	}
}

// firstBytes returns at most n bytes of a text, cut between two characters.
func firstBytes(text string, n int) string {
	if n = max(n, 0); len(text) <= n {
		return text
	}
	for n > 0 && !utf8.RuneStart(text[n]) {
		n--
	}
	return text[:n]
}

// word appends a text without white space.
func (w *writer) word(text string) {
	if strings.ContainsFunc(text, isFiller) {
		text = strings.Map(func(r rune) rune {
			if isFiller(r) {
				return -1
			}
			return r
		}, text)
	}
	if !email.IsBlank(text) {
		w.put(text)
	}
}

// put writes what is pending, and text.
func (w *writer) put(text string) {
	switch {
	case w.out.Len() == 0:
	case w.breaks > 0:
		w.out.WriteString("\n\n"[:min(w.breaks, 2)])
	case w.cell:
		w.out.WriteString("  ")
	case w.space:
		w.out.WriteByte(' ')
	}
	w.out.WriteString(w.prefix)
	w.out.WriteString(text)
	w.breaks, w.cell, w.space, w.prefix = 0, false, false, ""
	w.full = w.out.Len() >= w.limit
}

func (w *writer) text() string {
	w.endLink()
	if w.full || w.out.Len() == 0 {
		return ""
	}
	return w.out.String() + "\n"
}

// isSpace reports white space that a reader sees as one space. A no-break space counts too: preheaders
// are filled up with it.
func isSpace(r rune) bool { return unicode.IsSpace(r) || r == '\u2007' || r == '\u202f' }

// isFiller reports invisible characters and those that may not be in a text part.
func isFiller(r rune) bool {
	switch r {
	case '\u200b', '\u2060', '\ufeff', '\u00ad', '\u034f', '\ufffd':
		return true
	}
	return r < ' ' || r == 0x7f
}
