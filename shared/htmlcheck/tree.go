package htmlcheck

import (
	"strings"

	"golang.org/x/net/html"
)

// tree inspects the body as the tree a client builds of it. Comments are left
// to the token readings, which see their text undecoded.
func (in *inspector) tree(markup string, scripting bool, found emit) (stop bool) {
	in.found.nextReading()
	root, err := html.ParseWithOptions(strings.NewReader(markup), html.ParseOptionEnableScripting(scripting))
	if err != nil {
		return found(parseError(err))
	}
	for node := root; node != nil; node = following(node) {
		if node.Type != html.ElementNode {
			continue
		}
		if in.node(node, found) {
			return true
		}
	}
	return false
}

// node inspects an element under its lower-case names: inside svg the tree
// builder writes some of them with capitals.
func (in *inspector) node(node *html.Node, found emit) (stop bool) {
	tag := strings.ToLower(node.Data)
	for i := range node.Attr {
		node.Attr[i].Key = strings.ToLower(node.Attr[i].Key)
	}
	if in.element(tag, node.Attr, found) {
		return true
	}
	switch {
	case tag == "style":
		return styleSheet(childText(node), found)
	case tag == "script" && node.Namespace != "":
		return found(scriptElement(tag)) // its content is markup there
	}
	return false
}

// childText joins an element's own text, as clients do to get a style sheet.
func childText(node *html.Node) string {
	var text strings.Builder
	for child := node.FirstChild; child != nil; child = child.NextSibling {
		if child.Type == html.TextNode {
			text.WriteString(child.Data)
		}
	}
	return text.String()
}

// following walks a tree in document order without recursion, whose depth the
// sender would decide.
func following(node *html.Node) *html.Node {
	if node.FirstChild != nil {
		return node.FirstChild
	}
	for node != nil && node.NextSibling == nil {
		node = node.Parent
	}
	if node == nil {
		return nil
	}
	return node.NextSibling
}

// parseError distinguishes the parser's depth limit, which has no error value, from its internal
// errors. Both reject the body: what cannot be read is not sent.
func parseError(err error) *Violation {
	if strings.Contains(err.Error(), "open stack of elements exceeds") {
		return ErrTooDeep
	}
	return &Violation{Rule: RuleUnparsable, Detail: "the markup cannot be parsed"}
}
