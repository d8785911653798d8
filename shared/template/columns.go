package template

import (
	"slices"
	"strings"

	"email-gateway/shared/mailmerge"
)

// Columns are those of a mailing's file.
type Columns struct {
	// Has reports whether there is a column of this name.
	Has func(name string) bool
	// Begins reports whether the name of a column begins with prefix, which ends with a dot.
	Begins func(prefix string) bool
	// Within lists the columns whose names begin with prefix, and whose cells may be written into an email. The names
	// begin with prefix as it is given.
	Within func(prefix string) []string
}

// Named are columns with these names.
func Named(names []string) Columns {
	return Columns{
		Has: func(name string) bool { return slices.Contains(names, name) },
		Begins: func(prefix string) bool {
			return slices.ContainsFunc(names, func(name string) bool { return strings.HasPrefix(name, prefix) })
		},
		Within: func(prefix string) (within []string) {
			for _, name := range names {
				if strings.HasPrefix(name, prefix) {
					within = append(within, name)
				}
			}
			return within
		},
	}
}

// Uses is what a template needs of the columns of a file.
type Uses struct {
	// Names are the columns that the template uses, as it writes them, and all columns of an object that it asks for:
	// whether a row has the object must not depend on which of its columns other parts of the template write.
	Names []string
	// InSubject says which of them the subject uses.
	InSubject []bool
	// Own are the names used of what the gateway provides: email, token and unsubscribe_url. OwnInSubject are those
	// that the subject uses.
	Own, OwnInSubject []string
	// Missing are names of no column that have no default and are not declared as optional.
	Missing []string
	// Conflict is a pair of columns of which one is a text and the other is in an object of the same name: customer and
	// customer.name.
	Conflict []string
}

// Uses resolves the names of the template as rendering does: within a section the columns that begin with
// its name come first.
func (t *Template) Uses(columns Columns) Uses {
	b := t.bind(columns)
	for _, name := range t.required {
		if !isOwn(name) && !columns.Begins(name+".") && !columns.Has(name) && !slices.Contains(b.uses.Missing, name) {
			b.uses.Missing = append(b.uses.Missing, name)
		}
	}
	b.uses.Conflict = conflictingNames(append(slices.Clone(b.uses.Names), b.uses.Own...))
	return b.uses
}

// conflictingNames returns a name and another one that is in an object of this name; nil if there are none.
func conflictingNames(names []string) []string {
	within := map[string]string{} // the first name in an object, by the object's name
	for _, name := range names {
		for i := range len(name) {
			if _, known := within[name[:i]]; name[i] == '.' && !known {
				within[name[:i]] = name
			}
		}
	}
	for _, name := range names {
		if inner, ok := within[name]; ok {
			return []string{name, inner}
		}
	}
	return nil
}

func (t *Template) bind(columns Columns) *binder {
	b := &binder{template: t, columns: columns, index: map[string]int{}, column: map[*node]int{}}
	for i, p := range []*part{t.subject, t.html, t.text} {
		if p != nil {
			b.subject = i == 0
			b.nodes(p.nodes, nil, false)
		}
	}
	for _, object := range b.objects {
		b.addObject(object)
	}
	return b
}

// addObject adds the columns of an object to those that are used. One that clashes with another is left out: no part of
// the template writes it.
func (b *binder) addObject(name string) {
	for _, column := range b.columns.Within(name + ".") {
		known := slices.ContainsFunc(b.uses.Names, func(name string) bool {
			return name == column || strings.HasPrefix(name, column+".") || strings.HasPrefix(column, name+".")
		})
		if !known {
			b.uses.Names, b.uses.InSubject = append(b.uses.Names, column), append(b.uses.InSubject, false)
		}
	}
}

// isOwn reports whether the gateway provides the value, whatever columns the file has.
func isOwn(name string) bool {
	return name == mailmerge.FieldEmail || name == mailmerge.FieldToken || name == mailmerge.FieldUnsubscribeURL
}

// binder finds the column of each tag.
type binder struct {
	template *Template
	columns  Columns
	uses     Uses
	index    map[string]int // in uses.Names; -1 = there is no such column
	column   map[*node]int
	subject  bool
	objects  []string // those of which it matters whether a row has them
}

// nodes binds tags. objects are the sections around them that are objects, the innermost last. unchecked says that
// names may be those of a default's elements, or are never rendered.
func (b *binder) nodes(nodes []node, objects []string, unchecked bool) {
	for i := range nodes {
		n := &nodes[i]
		if n.path == nil {
			b.nodes(n.nodes, objects, unchecked)
			continue
		}
		name := n.tag.Field.Name
		found := b.find(n, objects)
		inner := objects
		if !found && n.tag.Kind != mailmerge.Variable {
			if object, ok := b.object(name, objects); ok {
				if found = true; n.tag.Kind == mailmerge.Section { // an inverted one is for rows without the object
					inner = append(slices.Clone(objects), object)
				}
				b.needs(object)
			}
		}
		value, declared := b.template.defaults[n.path[0]]
		if value != nil { // used if a row lacks the object
			b.needs(n.path[0])
		}
		if optional := declared || n.tag.Field.HasDefault; !found && !optional && !unchecked && !slices.Contains(b.uses.Missing, name) {
			b.uses.Missing = append(b.uses.Missing, name)
		}
		b.nodes(n.nodes, inner, unchecked || n.tag.Kind == mailmerge.Section && (isComposite(value) || !found && declared))
	}
}

func (b *binder) needs(object string) {
	if !slices.Contains(b.objects, object) {
		b.objects = append(b.objects, object)
	}
}

func isComposite(value any) bool {
	switch value.(type) {
	case []any, map[string]any:
		return true
	}
	return false
}

func (b *binder) find(n *node, objects []string) bool {
	name := n.tag.Field.Name
	for _, object := range slices.Backward(objects) {
		if b.bound(object + "." + name) {
			b.column[n] = b.index[object+"."+name]
			return true
		}
	}
	if isOwn(name) {
		if !slices.Contains(b.uses.Own, name) {
			b.uses.Own = append(b.uses.Own, name)
		}
		if b.subject && !slices.Contains(b.uses.OwnInSubject, name) {
			b.uses.OwnInSubject = append(b.uses.OwnInSubject, name)
		}
		return true
	}
	if b.bound(name) {
		b.column[n] = b.index[name]
		return true
	}
	return false
}

// bound looks a column up and adds it to those that are used.
func (b *binder) bound(name string) bool {
	i, known := b.index[name]
	if !known {
		if i = -1; b.columns.Has(name) {
			i = len(b.uses.Names)
			b.uses.Names, b.uses.InSubject = append(b.uses.Names, name), append(b.uses.InSubject, false)
		}
		b.index[name] = i
	}
	if i >= 0 && b.subject {
		b.uses.InSubject[i] = true
	}
	return i >= 0
}

// object is the full name of a section that columns begin with.
func (b *binder) object(name string, objects []string) (string, bool) {
	for _, around := range slices.Backward(objects) {
		if full := around + "." + name; b.columns.Begins(full + ".") {
			return full, true
		}
	}
	return name, b.columns.Begins(name + ".")
}
