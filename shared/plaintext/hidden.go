package plaintext

import "slices"

// hidden is the element whose content is left out; the zero value is none.
type hidden struct {
	name  string
	depth int // of elements of this name within it
	nests int // elements within it in which end tags may be omitted again, such as a list within an item
}

// omitted describes an element whose end tag html may omit (HTML, section "Optional tags"): another tag ends it.
type omitted struct {
	starts, ends []string // tags that end it: of its siblings, and of its parents
	within       []string // elements within it that have such siblings of their own
}

// blocks are the elements that a paragraph cannot contain.
var blocks = []string{
	"address", "article", "aside", "blockquote", "center", "details", "dialog", "div", "dl", "fieldset", "figcaption", "figure", "footer", "form",
	"h1", "h2", "h3", "h4", "h5", "h6", "header", "hr", "main", "menu", "nav", "ol", "p", "pre", "section", "table", "ul",
}

var (
	rowGroups   = []string{"thead", "tbody", "tfoot"}
	omittedEnds = map[string]omitted{
		"p":      {starts: append([]string{"li", "td", "th", "tr", "dt", "dd"}, blocks...), ends: append([]string{"li", "td", "th", "tr", "dd", "body"}, blocks...)},
		"li":     {starts: []string{"li"}, ends: []string{"ul", "ol", "menu"}, within: []string{"ul", "ol", "menu"}},
		"dt":     {starts: []string{"dt", "dd"}, ends: []string{"dl"}, within: []string{"dl"}},
		"dd":     {starts: []string{"dt", "dd"}, ends: []string{"dl"}, within: []string{"dl"}},
		"td":     {starts: append([]string{"td", "th", "tr"}, rowGroups...), ends: append([]string{"tr", "table"}, rowGroups...), within: []string{"table"}},
		"th":     {starts: append([]string{"td", "th", "tr"}, rowGroups...), ends: append([]string{"tr", "table"}, rowGroups...), within: []string{"table"}},
		"tr":     {starts: append([]string{"tr"}, rowGroups...), ends: append([]string{"table"}, rowGroups...), within: []string{"table"}},
		"thead":  {starts: rowGroups, ends: []string{"table"}, within: []string{"table"}},
		"tbody":  {starts: rowGroups, ends: []string{"table"}, within: []string{"table"}},
		"tfoot":  {starts: rowGroups, ends: []string{"table"}, within: []string{"table"}},
		"option": {starts: []string{"option", "optgroup"}, ends: []string{"select", "optgroup", "datalist"}},
	}
)

// start reports whether a start tag is within the element, and ends the element if the tag does.
func (h *hidden) start(name string) (within bool) {
	if h.name == "" {
		return false
	}
	o := omittedEnds[h.name]
	switch {
	case h.nests == 0 && slices.Contains(o.starts, name):
		*h = hidden{}
		return false
	case slices.Contains(o.within, name):
		h.nests++
	case name == h.name && h.nests == 0:
		h.depth++
	}
	return true
}

// end is start for an end tag. The element's own end tag is within it.
func (h *hidden) end(name string) (within bool) {
	if h.name == "" {
		return false
	}
	o := omittedEnds[h.name]
	switch {
	case h.nests > 0 && slices.Contains(o.within, name):
		h.nests--
	case name == h.name:
		if h.nests > 0 {
			break
		}
		if h.depth--; h.depth == 0 {
			*h = hidden{}
		}
	case h.nests == 0 && slices.Contains(o.ends, name):
		*h = hidden{}
		return false
	}
	return true
}
