package template

import (
	"fmt"
	"slices"
	"strings"

	"email-gateway/shared/email"
	"email-gateway/shared/mailmerge"
)

// Row renders a template with the rows of a mailing's file. It is immutable and safe for concurrent use.
type Row struct {
	template *Template
	paths    [][]string
	own      []string
	column   map[*node]int
}

// Values are those of one row.
type Values struct {
	Email, Token, UnsubscribeURL string
	Fields                       []string // in the order of the names of Row
}

// Row binds the template to columns, the Names of Uses.
func (t *Template) Row(names []string) *Row {
	b := t.bind(Named(names))
	r := &Row{template: t, paths: make([][]string, len(names)), own: b.uses.Own, column: make(map[*node]int, len(b.column))}
	for i, name := range names {
		if slices.Contains(b.uses.Names, name) { // a subject parsed alone uses few of the names
			r.paths[i] = strings.Split(name, ".")
		}
	}
	for n, i := range b.column {
		r.column[n] = slices.Index(names, b.uses.Names[i])
	}
	return r
}

// Uses reports whether a tag has the name of a value that the gateway provides.
func (r *Row) Uses(own string) bool { return slices.Contains(r.own, own) }

// RowFault is why a row cannot be rendered. It never quotes a value, so it may be logged.
type RowFault struct {
	Code   string
	Column int    // index in the names of Row; -1 = none
	Field  string // the name in the template, or subject, html or text
	Detail string // follows Field in the message, such as "is missing"
}

// Error joins code, field and detail.
func (f *RowFault) Error() string { return f.Code + " of " + f.Field + ": " + f.Detail }

// AppendTo renders a row behind dst and returns its parts, as they are sent, and the extended dst. An empty value is
// one that the data lacks: where neither a default is declared nor the variable as optional, nothing is written, and
// the column's index is in empty. The error is a *RowFault.
func (r *Row) AppendTo(dst []byte, v Values) (made Parts, _ []byte, empty []int, err error) {
	if len(v.Fields) < len(r.paths) {
		return Parts{}, dst, nil, fmt.Errorf("render: %d values for a template that needs %d", len(v.Fields), len(r.paths))
	}
	render := renderer{defaults: r.template.defaults, steps: maxRowSteps, body: email.MaxHTML, row: r, dst: dst}
	made = render.parts(r.template, r.root(v))
	if len(render.faults) > 0 {
		first := render.faults[0]
		fault := &RowFault{Code: first.Code, Column: -1, Field: first.Field, Detail: first.Message}
		if column, ok := r.column[render.at]; ok {
			fault.Column = column
		}
		return Parts{}, dst, nil, fault
	}
	made = Parts{Subject: email.PartBytes(made.Subject), HTML: email.PartBytes(made.HTML), Text: email.PartBytes(made.Text)}
	return made, render.dst, render.empty, nil
}

// Render is AppendTo for a single email.
func (r *Row) Render(v Values) (Rendered, error) {
	made, _, _, err := r.AppendTo(nil, v)
	if err != nil {
		return Rendered{}, err
	}
	return made.rendered(), nil
}

// root is the data of a row: columns with a dot in their names are in objects. An object has null for an empty cell, so
// that within its section no column outside takes the cell's place; an object without values is absent.
func (r *Row) root(v Values) map[string]any {
	root := make(map[string]any, len(r.paths)+len(r.own))
	for _, name := range r.own {
		switch name {
		case mailmerge.FieldEmail:
			root[name] = v.Email
		case mailmerge.FieldToken:
			root[name] = v.Token
		case mailmerge.FieldUnsubscribeURL:
			root[name] = v.UnsubscribeURL
		}
	}
	for i, path := range r.paths {
		if path == nil || v.Fields[i] == "" {
			continue
		}
		object := root
		for _, name := range path[:len(path)-1] {
			inner, ok := object[name].(map[string]any)
			if !ok {
				inner = make(map[string]any)
				object[name] = inner
			}
			object = inner
		}
		object[path[len(path)-1]] = v.Fields[i]
	}
	for i, path := range r.paths {
		if len(path) > 1 && v.Fields[i] == "" {
			addNull(root, path)
		}
	}
	return root
}

// addNull adds a null where the path leaves the existing objects, unless that is at the root.
func addNull(root map[string]any, path []string) {
	object := root
	for i, name := range path {
		value, found := object[name]
		if inner, ok := value.(map[string]any); ok {
			object = inner
			continue
		}
		if !found && i > 0 {
			object[name] = nil
		}
		return
	}
}

// addEmpty adds the column of a variable that has no value.
func (r *Row) addEmpty(empty []int, n *node) []int {
	column, ok := r.column[n]
	if !ok || slices.Contains(empty, column) {
		return empty
	}
	return append(empty, column)
}

// Has reports whether the html or text, named by its field, writes the variable.
func (t *Template) Has(field, name string) bool {
	p := map[string]*part{"html": t.html, "text": t.text}[field]
	return p != nil && p.has(name)
}

// Literals is the text of the html, or of the text if there is no html, that every email shows: what is outside of
// sections.
func (t *Template) Literals() string {
	p := t.html
	if p == nil {
		p = t.text
	}
	var all strings.Builder
	for i := range p.nodes {
		all.WriteString(p.nodes[i].tag.Literal)
	}
	return all.String() + p.tail
}
