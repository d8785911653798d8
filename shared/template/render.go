package template

import (
	"encoding/json"
	"fmt"
	"strconv"
	"unicode/utf8"

	"email-gateway/shared/email"
	"email-gateway/shared/mailmerge"
	"email-gateway/shared/rules"
)

// Codes of render faults.
const (
	CodeMissing  = "VARIABLE_MISSING"
	CodeType     = "VARIABLE_TYPE"
	CodeTooLarge = "RENDERED_TOO_LARGE"
	CodeTooMuch  = "TEMPLATE_TOO_COMPLEX"
)

// maxSteps limits the tags that are evaluated for one email: nested sections over long lists that
// render nothing would otherwise take unlimited time. 500,000 take about 50 ms.
const maxSteps = 500_000

// quickSteps and quickBody are the limits of RenderQuickly.
const quickSteps, quickBody = 10_000, 64 << 10

// maxRowSteps is the limit for a row of a mailing's file, of which there are up to two million. A row has no lists,
// so that it is the tags of the largest subject and bodies; only defaults that are lists could need more.
const maxRowSteps = 3*mailmerge.MaxTags + 1

// maxSubjectBytes stops the rendering of a subject that is too long in any case.
const maxSubjectBytes = email.MaxSubject * utf8.UTFMax

// Rendered is the content of an email. HTML or Text is empty if the template has none.
type Rendered struct{ Subject, HTML, Text string }

// Render renders the template. field is the path of the data in the request, such as template.data;
// faults name the variables by it, and subject, html or text if the result breaks a limit.
func (t *Template) Render(field string, data Data) (Rendered, rules.Faults) {
	rendered, faults, _ := t.render(renderer{field: field, steps: maxSteps, body: email.MaxHTML}, data)
	return rendered, faults
}

// RenderQuickly is Render for callers that render without a limit on how many do at the same time. It gives up after
// 10,000 tags or 64 KiB, which take about 2 ms; then done is false.
func (t *Template) RenderQuickly(field string, data Data) (rendered Rendered, faults rules.Faults, done bool) {
	return t.render(renderer{field: field, steps: quickSteps, body: quickBody}, data)
}

func (t *Template) render(r renderer, data Data) (_ Rendered, _ rules.Faults, done bool) {
	field := r.field
	r.defaults = t.defaults
	for _, name := range t.required {
		if data.root[name] == nil {
			r.faults.Add(field+"."+name, CodeMissing, "is required by the template")
			r.reported++
		}
	}
	made := r.parts(t, data.root)
	if r.steps < 0 || r.tooLong {
		return Rendered{}, r.faults, false
	}
	if len(r.faults) > 0 {
		return Rendered{}, r.faults, true
	}
	return made.rendered(), nil, true
}

// Parts is the content of an email in one buffer.
type Parts struct{ Subject, HTML, Text []byte }

func (p Parts) rendered() Rendered {
	return Rendered{Subject: string(p.Subject), HTML: string(p.HTML), Text: string(p.Text)}
}

// renderer is one rendering.
type renderer struct {
	field    string
	defaults map[string]any
	faults   rules.Faults
	steps    int
	frames   []frame
	dst      []byte
	body     int  // bytes that a body may have
	limit    int  // length of dst that the part must not exceed
	row      *Row // nil = the data is JSON
	empty    []int
	at       *node // of the first fault of a row
	reported int   // faults, those of one variable counted each time
	stopped  bool
	large    bool // stopped because of the limit
	tooLong  bool // a body was
}

// fault adds a fault and stops after rules.MaxFaults, so that a variable with a long invalid value is
// not checked again for each element of a list.
func (r *renderer) fault(n *node, at int, code, message string) {
	if r.row != nil {
		if r.stopped = true; len(r.faults) == 0 {
			r.at = n
		}
		r.faults.Add(n.tag.Field.Name, code, message)
		return
	}
	r.faults.Add(r.pathOf(n.path, at), code, message)
	if r.reported++; r.reported >= rules.MaxFaults {
		r.stopped = true
	}
}

// frame is a value that names are looked up in, with its path from the frame before.
type frame struct {
	value any
	path  string
}

// parts renders what the template has and adds faults.
func (r *renderer) parts(t *Template, root map[string]any) (made Parts) {
	var ends [3]int
	begin := len(r.dst)
	for i, p := range []struct {
		name  string
		part  *part
		limit int
	}{{"subject", t.subject, maxSubjectBytes}, {"html", t.html, r.body}, {"text", t.text, r.body}} {
		if p.part != nil && (r.row == nil || len(r.faults) == 0) {
			r.part(p.name, p.part, p.limit, root)
		}
		ends[i] = len(r.dst)
	}
	made = Parts{r.dst[begin:ends[0]:ends[0]], r.dst[ends[0]:ends[1]:ends[1]], r.dst[ends[1]:ends[2]:ends[2]]}
	if n := utf8.RuneCount(made.Subject); n < 1 || n > email.MaxSubject {
		r.faults.Add("subject", mailmerge.CodeSubjectLength, fmt.Sprintf("has %d characters instead of 1 to %d", n, email.MaxSubject))
	}
	return made
}

func (r *renderer) part(name string, p *part, limit int, root map[string]any) {
	r.limit, r.large, r.stopped = len(r.dst)+limit, false, r.reported >= rules.MaxFaults
	r.frames = append(r.frames[:0], frame{root, r.field})
	r.nodes(p.nodes)
	r.write(p.tail)
	if r.steps < 0 {
		r.faults.Add(name, CodeTooMuch, "would evaluate too many tags: shorten the lists of the data")
	} else if r.large {
		r.tooLong = r.tooLong || limit == r.body
		r.faults.Add(name, CodeTooLarge, fmt.Sprintf("would be larger than %d bytes", limit))
	}
}

func (r *renderer) write(text string) {
	if len(r.dst)+len(text) > r.limit {
		r.stopped, r.large = true, true
		return
	}
	r.dst = append(r.dst, text...)
}

func (r *renderer) nodes(nodes []node) {
	for i := range nodes {
		if r.steps--; r.steps < 0 || r.stopped {
			r.stopped = true
			return
		}
		n := &nodes[i]
		r.write(n.tag.Literal)
		if n.tag.Kind == mailmerge.Variable {
			r.variable(n)
		} else {
			r.section(n)
		}
	}
}

// variable writes a value, or adds a fault.
func (r *renderer) variable(n *node) {
	value, found, at := r.find(n.path)
	text := ""
	switch v := value.(type) {
	case nil:
	case string:
		text = v
	case json.Number:
		text = v.String()
	case bool:
		text = strconv.FormatBool(v)
	default:
		r.fault(n, at, CodeType, "must be a text, a number or a boolean, because the template has {{"+n.tag.Field.Name+"}}")
		return
	}
	if text == "" && n.tag.Field.HasDefault {
		text = n.tag.Field.Default
	} else if missing := !found || value == nil && !r.isOptional(n.path); missing && r.row != nil {
		r.empty = r.row.addEmpty(r.empty, n)
	} else if missing {
		r.fault(n, at, CodeMissing, "is missing: the template has {{"+n.tag.Field.Name+"}}")
		return
	}
	if code, detail := n.tag.Check(text); code != "" {
		// Where an optional address is missing, the attribute is empty.
		if text != "" || !r.isOptional(n.path) || code == mailmerge.CodeValueHost {
			r.fault(n, at, code, detail)
		}
		return
	}
	if r.dst = n.tag.AppendTo(r.dst, text); len(r.dst) > r.limit {
		r.stopped, r.large = true, true
	}
}

// isOptional reports whether a missing or null value is declared as not required.
func (r *renderer) isOptional(path []string) bool {
	if len(path) == 0 {
		return false
	}
	value, declared := r.defaults[path[0]]
	return declared && value == nil
}

func (r *renderer) section(n *node) {
	value, found, at := r.find(n.path)
	if !found && r.row == nil {
		r.fault(n, at, CodeMissing, "is missing: the template has a section {{"+sign(n)+n.tag.Field.Name+"}}")
		return
	}
	list, isList := value.([]any)
	truthy := value != nil && value != false && value != "" && (!isList || len(list) > 0)
	switch {
	case n.tag.Kind == mailmerge.Inverted:
		if !truthy {
			r.nodes(n.nodes)
			r.write(n.tail)
		}
	case !truthy:
	case isList:
		path := r.pathOf(n.path, at)
		for i, element := range list {
			r.enter(n, frame{element, path + "[" + strconv.Itoa(i) + "]"})
			if r.steps--; r.steps < 0 || r.stopped {
				r.stopped = true
				return
			}
		}
	default:
		r.enter(n, frame{value, r.pathOf(n.path, at)})
	}
}

func sign(n *node) string {
	if n.tag.Kind == mailmerge.Inverted {
		return "^"
	}
	return "#"
}

func (r *renderer) enter(n *node, f frame) {
	r.frames = append(r.frames, f)
	r.nodes(n.nodes)
	r.write(n.tail)
	r.frames = r.frames[:len(r.frames)-1]
}

// find looks a name up: its first part in the innermost frame that has it, the others in the value
// found. at is the index of the frame, or of the one to report if there is none.
func (r *renderer) find(path []string) (value any, found bool, at int) {
	top := len(r.frames) - 1
	if len(path) == 0 {
		return r.frames[top].value, true, top
	}
	for at = top; at >= 0; at-- {
		object, ok := r.frames[at].value.(map[string]any)
		if !ok {
			continue
		}
		value, found = object[path[0]]
		if found && value == nil && at > 0 && r.row != nil { // an empty cell of the object: only a declared default takes its place
			if fallback, declared := r.defaults[path[0]]; declared {
				return r.descend(fallback, path[1:], 0)
			}
		}
		if found && (at > 0 || value != nil) {
			return r.descend(value, path[1:], at)
		}
	}
	if value, found = r.defaults[path[0]]; found {
		return r.descend(value, path[1:], 0)
	}
	if root, ok := r.frames[0].value.(map[string]any); ok {
		if _, found = root[path[0]]; found { // null
			return r.descend(nil, path[1:], 0)
		}
	}
	for at = top; at > 0; at-- {
		if _, ok := r.frames[at].value.(map[string]any); ok {
			break
		}
	}
	return nil, false, max(at, 0)
}

func (r *renderer) descend(value any, path []string, at int) (any, bool, int) {
	for i, name := range path {
		object, ok := value.(map[string]any)
		if !ok {
			// Nothing is below a null that the template declares as optional.
			return nil, value == nil && at == 0 && i == 0, at
		}
		if value, ok = object[name]; !ok {
			return nil, false, at
		}
	}
	return value, true, at
}

// pathOf is the path of a value in the request. Only faults and lists need it.
func (r *renderer) pathOf(path []string, at int) string {
	text := r.frames[at].path
	for _, name := range path {
		text += "." + name
	}
	return text
}
