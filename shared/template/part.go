package template

import (
	"strings"

	"email-gateway/shared/mailmerge"
)

// part is a parsed subject or body.
type part struct {
	nodes []node
	tail  string
}

// node is a tag with the text before it. A section has the nodes between its tags.
type node struct {
	tag   *mailmerge.Tag
	path  []string // the name, split at its dots; nil = the current element
	nodes []node
	tail  string // text before the end of the section
}

// nodeSize is roughly the memory of a node and its tag.
const nodeSize = 256

// newPart makes a tree of an outline, whose sections are paired.
func newPart(o *mailmerge.Outline) *part {
	p := &part{tail: o.Tail}
	p.nodes, _, _ = newNodes(o.Tags)
	return p
}

// newNodes reads tags until the end of a section and returns the tags behind it and the text before it.
func newNodes(tags []mailmerge.Tag) (nodes []node, rest []mailmerge.Tag, tail string) {
	for len(tags) > 0 {
		tag := &tags[0]
		tags = tags[1:]
		if tag.Kind == mailmerge.End {
			return nodes, tags, tag.Literal
		}
		n := node{tag: tag}
		if tag.Field.Name != "." {
			n.path = strings.Split(tag.Field.Name, ".")
		}
		if tag.Kind != mailmerge.Variable {
			n.nodes, tags, n.tail = newNodes(tags)
		}
		nodes = append(nodes, n)
	}
	return nodes, nil, ""
}

// has reports whether a variable of this name is written.
func (p *part) has(name string) bool {
	var in func(nodes []node) bool
	in = func(nodes []node) bool {
		for i := range nodes {
			n := &nodes[i]
			if n.tag.Kind == mailmerge.Variable && n.tag.Field.Name == name || in(n.nodes) {
				return true
			}
		}
		return false
	}
	return in(p.nodes)
}
