package mailmerge

import (
	"strings"

	"golang.org/x/net/html"
)

// Checked is the HTML of a template in the form that package htmlcheck must check: a letter in place of each tag,
// without comments and defaults. Clients read that. In the source, a comment could split a name that the check looks for,
// and a default could contain a tag behind which the check takes script for text. The zero value with HTML is that of a
// body without tags.
type Checked struct {
	HTML   string
	source *source // nil = HTML is the source
}

// CheckedHTML is the checked form of a source for ParseHTML. A source whose braces cannot be read is returned as it is.
func CheckedHTML(text string) Checked { return checked(text, false) }

// CheckedOutline is CheckedHTML for OutlineHTML.
func CheckedOutline(text string) Checked { return checked(text, true) }

func checked(text string, sections bool) Checked {
	src, fault := lexTags(text, html.UnescapeString, sections)
	if fault != nil {
		return Checked{HTML: text}
	}
	return Checked{HTML: src.doc, source: src}
}

// Line is the line of the source, from 1, in which a line of HTML begins, behind the section tags at its beginning.
func (c Checked) Line(line int) int {
	if c.source == nil {
		return line
	}
	at := 0
	for range line - 1 {
		n := strings.IndexByte(c.HTML[at:], '\n')
		if n < 0 {
			break
		}
		at += n + 1
	}
	for _, s := range c.source.positions {
		if s.at == at && s.kind != Variable {
			at++
		}
	}
	return c.source.fault(at, "", "").Line
}
