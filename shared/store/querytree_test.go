package store_test

import (
	"errors"
	"strconv"
	"strings"
)

// node is a part of a query tree as Postgres prints it (debug_print_parse): a struct with
// named fields, a list, or an atom. Unlike a parser of the text, Postgres has resolved every
// name: a column is the number of a table in the query and the number of its attribute.
type node struct {
	tag    string             // "QUERY"; "" in lists and atoms
	fields map[string][]*node // the values after :name
	list   []*node
	atom   string
}

// parseTree reads the text of a tree.
func parseTree(text string) (*node, error) {
	p := treeParser{rest: text}
	n := p.value()
	if p.failed || n == nil {
		return nil, errors.New("no query tree: " + text[:min(80, len(text))])
	}
	return n, nil
}

type treeParser struct {
	rest   string
	failed bool
}

// token returns the next brace, parenthesis or word; "" at the end. A backslash protects
// the character behind it.
func (p *treeParser) token() string {
	p.rest = strings.TrimLeft(p.rest, " \n\t")
	if p.rest == "" {
		return ""
	}
	if strings.IndexByte("{}()", p.rest[0]) >= 0 {
		token := p.rest[:1]
		p.rest = p.rest[1:]
		return token
	}
	i := 0
	for quoted := false; i < len(p.rest); i++ {
		switch c := p.rest[i]; {
		case c == '\\':
			i++
			continue
		case c == '"' && (i == 0 || quoted):
			quoted = !quoted
			continue
		case quoted:
			continue
		case strings.IndexByte(" \n\t{}()", c) < 0:
			continue
		}
		break
	}
	token := p.rest[:min(i, len(p.rest))]
	p.rest = p.rest[len(token):]
	return token
}

// value reads one value; nil is a closing brace, or the end.
func (p *treeParser) value() *node {
	switch token := p.token(); token {
	case "", "}", ")":
		p.failed = p.failed || token == ""
		return nil
	case "{":
		n := &node{tag: p.token(), fields: map[string][]*node{}}
		name := ""
		for {
			v := p.value()
			switch {
			case v == nil:
				return n
			case strings.HasPrefix(v.atom, ":"):
				name = v.atom[1:]
				n.fields[name] = nil
			default:
				n.fields[name] = append(n.fields[name], v)
			}
		}
	case "(":
		n := &node{list: []*node{}}
		for v := p.value(); v != nil; v = p.value() {
			n.list = append(n.list, v)
		}
		return n
	default:
		return &node{atom: token}
	}
}

// one is the field's single value; an empty node if there is none.
func (n *node) one(name string) *node {
	if n == nil || len(n.fields[name]) == 0 {
		return &node{}
	}
	return n.fields[name][0]
}

// items returns the elements of a field's list.
func (n *node) items(name string) []*node { return n.one(name).list }

// number is the field's value; 0 if it is none.
func (n *node) number(name string) int {
	value, err := strconv.Atoi(n.one(name).atom)
	if err != nil {
		return 0
	}
	return value
}

// each calls do with the node and all within it, until do says false: then what is within
// that one is left out.
func (n *node) each(do func(*node) bool) {
	if n == nil || !do(n) {
		return
	}
	for _, values := range n.fields {
		for _, value := range values {
			value.each(do)
		}
	}
	for _, element := range n.list {
		element.each(do)
	}
}
