package htmlcheck

import "strings"

// inspector checks one body, or the document inside a srcdoc attribute.
type inspector struct {
	thorough bool // make every reading, needed or not
	nested   bool // this is the inside of a srcdoc
	found    *list
	seen     map[string][]*Violation // result per srcdoc, which several readings reach
}

// maxOpen is the parser's limit of 512 open elements less the few it opens by
// itself (html, head or body, a p for a stray </p>).
const maxOpen = 500

// maxRootWork bounds occurrences of <html> and <body> times the size. The tree
// builder merges the attributes of each into the first one and copies those
// already there every time: without a bound 512 KiB of <body a1><body a2>… keep
// it busy for minutes. The bound leaves 32 of them in the largest body.
const maxRootWork = 32 * MaxBytes

func (in *inspector) document(html string, found emit) (stop bool) {
	if countFold(html, "<html", "<body")*len(html) > maxRootWork {
		return found(ErrTooComplex)
	}
	if !in.thorough {
		if ok, deep := ordinary(html); ok && deep {
			return in.tree(html, true, found)
		} else if ok {
			return false
		}
	}
	tokens := tokenReading{visit: in.element, limit: in.found.limit, lines: in.found.lines && !in.nested}
	if tokens.read(html, found) {
		return true
	}
	features := tokens.features
	if features.hidden || features.foreign || in.thorough {
		in.found.nextReading()
		live := tokenReading{visit: in.element, live: true, foreign: features.foreign, limit: in.found.limit, lines: tokens.lines}
		if live.read(html, found) {
			return true
		}
	}
	return in.trees(html, features, found)
}

// trees builds the trees that can differ from the first token reading.
//
// The tree builder takes its elements and attributes from the same tokenizer
// and changes the tokenizer's course in two cases only: inside svg and math,
// and at noscript with scripting off. Without those, each element of the tree
// is a start tag already inspected, or one made up without attributes, so the
// tree can add nothing but the error of being too deep. At most one open
// element stands for each start tag of a non-void element, plus a tbody and a
// tr implied above each table or template: below the limit it cannot be deep.
func (in *inspector) trees(html string, features markupFeatures, found emit) (stop bool) {
	if features.foreign && countFold(html, "<template") > 0 {
		// The tree builder stops reading where the two are combined.
		return found(&Violation{
			Rule: RuleUnparsable, Where: "template",
			Detail: "template elements cannot be combined with svg or math",
		})
	}
	deep := features.starts+2*features.tables > maxOpen
	if (features.foreign || deep || in.thorough) && in.tree(html, true, found) {
		return true
	}
	if features.noscript || features.foreign && countFold(html, "<noscript") > 0 || in.thorough {
		return in.tree(html, false, found)
	}
	return false
}

// srcdoc checks a document in an attribute. One inside another is
// refused unread: each level could repeat all the work of the one above.
func (in *inspector) srcdoc(html string) []*Violation {
	if !hasTag(html) {
		return nil
	}
	if in.nested {
		return []*Violation{{Rule: RuleNestedDocument, Detail: "a srcdoc must not contain another srcdoc"}}
	}
	if all, ok := in.seen[html]; ok {
		return all
	}
	if in.seen == nil {
		in.seen = make(map[string][]*Violation)
	}
	found := list{limit: in.found.limit}
	inner := inspector{thorough: in.thorough, nested: true, found: &found}
	inner.document(html, found.add)
	in.seen[html] = found.all
	return found.all
}

// countFold counts where html continues with one of the prefixes, which are
// lower case and begin with "<".
func countFold(html string, prefixes ...string) int {
	n := 0
	for {
		i := strings.IndexByte(html, '<')
		if i < 0 {
			return n
		}
		html = html[i:]
		for _, p := range prefixes {
			if len(html) >= len(p) && strings.EqualFold(html[:len(p)], p) {
				n++
			}
		}
		html = html[1:]
	}
}

// hasTag reports whether anything in html could be a start tag.
func hasTag(html string) bool {
	for {
		i := strings.IndexByte(html, '<')
		if i < 0 || i+1 == len(html) {
			return false
		}
		html = html[i+1:]
		if isLetter(html[0]) {
			return true
		}
	}
}

func isLetter(c byte) bool {
	return 'a' <= c|0x20 && c|0x20 <= 'z'
}
