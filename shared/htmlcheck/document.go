package htmlcheck

import "strings"

// inspector judges one body, or the document inside a srcdoc attribute.
type inspector struct {
	thorough bool                  // make every reading, needed or not
	nested   bool                  // this is the inside of a srcdoc
	seen     map[string]*Violation // verdict per srcdoc, which several readings meet
}

// maxOpen is the parser's limit of 512 open elements less the few it opens by
// itself (html, head or body, a p for a stray </p>).
const maxOpen = 500

// maxRootWork bounds occurrences of <html> and <body> times the size. The tree
// builder merges the attributes of each into the first one and copies those
// already there every time: without a bound 512 KiB of <body a1><body a2>… keep
// it busy for minutes. The bound leaves 32 of them in the largest body.
const maxRootWork = 32 * MaxBytes

func (in *inspector) document(html string) *Violation {
	if countFold(html, "<html", "<body")*len(html) > maxRootWork {
		return ErrTooComplex
	}
	if !in.thorough {
		if ok, deep := ordinary(html); ok && deep {
			return in.tree(html, true)
		} else if ok {
			return nil
		}
	}
	tokens := tokenReading{visit: in.element}
	if v := tokens.read(html); v != nil {
		return v
	}
	found := tokens.found
	if found.hidden || found.foreign || in.thorough {
		live := tokenReading{visit: in.element, live: true, foreign: found.foreign}
		if v := live.read(html); v != nil {
			return v
		}
	}
	return in.trees(html, found)
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
func (in *inspector) trees(html string, found survey) *Violation {
	if found.foreign && countFold(html, "<template") > 0 {
		// The tree builder stops reading where the two are combined.
		return &Violation{
			Rule: RuleUnparsable, Where: "template",
			Detail: "template elements cannot be combined with svg or math",
		}
	}
	deep := found.starts+2*found.tables > maxOpen
	if found.foreign || deep || in.thorough {
		if v := in.tree(html, true); v != nil {
			return v
		}
	}
	if found.noscript || found.foreign && countFold(html, "<noscript") > 0 || in.thorough {
		return in.tree(html, false)
	}
	return nil
}

// srcdoc checks a document that stands in an attribute. One inside another is
// refused unread: each level could repeat all the work of the one above.
func (in *inspector) srcdoc(html string) *Violation {
	if !hasTag(html) {
		return nil
	}
	if in.nested {
		return &Violation{Rule: RuleNestedDocument, Detail: "a srcdoc must not contain another srcdoc"}
	}
	if v, ok := in.seen[html]; ok {
		return v
	}
	if in.seen == nil {
		in.seen = make(map[string]*Violation)
	}
	inner := inspector{thorough: in.thorough, nested: true}
	v := inner.document(html)
	in.seen[html] = v
	return v
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
