package mailmerge

import (
	"fmt"
	"strings"

	"golang.org/x/net/html"
)

// TagKind is what a tag of a template with sections does.
type TagKind uint8

// The kinds of tags.
const (
	Variable TagKind = iota // {{name}}
	Section                 // {{#name}}
	Inverted                // {{^name}}
	End                     // {{/name}}
	comment                 // {{! text}}: removed by lexTags
)

const (
	// MaxTags limits the tags of one subject or body: each row of a mailing checks its values in all of them.
	MaxTags = 10_000
	// maxDepth limits the nesting of sections.
	maxDepth = 16
)

// current is the name of the element that a section repeats: {{.}}.
const current = "."

// tagKind is the kind of the tag that text begins with.
func tagKind(text string) TagKind {
	inside := strings.TrimLeft(text[len("{{"):], " \t\r\n")
	switch {
	case strings.HasPrefix(inside, "#"):
		return Section
	case strings.HasPrefix(inside, "^"):
		return Inverted
	case strings.HasPrefix(inside, "/"):
		return End
	case strings.HasPrefix(inside, "!"):
		return comment
	}
	return Variable
}

// unsupported says why a tag of Mustache is refused.
func unsupported(sign byte) string {
	switch sign {
	case '{', '&':
		return "variables are always escaped: write {{name}}, not {{{name}}} or {{&name}}"
	case '>':
		return "partials {{>name}} are not supported"
	case '=':
		return "the delimiters {{ }} cannot be changed"
	}
	return "use {{name}}, {{#name}}…{{/name}}, {{^name}}…{{/name}} or {{! comment}}; write \\{{ for two literal braces"
}

func tooManyTags(text string, at int) *Fault {
	return position(text, at, CodeTooManyTags, fmt.Sprintf("a template must have at most %d tags", MaxTags))
}

// section reads a section tag or a comment at open and returns where the text after it begins. done is
// where the text before it begins, which doc ends with. A tag alone on its line takes the line
// with it, as Mustache requires.
func (s *source) section(doc []byte, kind TagKind, done, open int) (_ []byte, end int, fault *Fault) {
	inside := s.text[open+len("{{"):]
	n := strings.Index(inside, "}}")
	if n < 0 {
		return nil, 0, position(s.text, open, CodeUnclosed, "the tag is not closed: }} is missing; write \\{{ for two literal braces")
	}
	end = open + len("{{") + n + len("}}")
	var field Field
	if kind != comment {
		sign := strings.IndexAny(inside, "#^/")
		name := strings.Trim(inside[sign+1:n], " \t\r\n")
		// The name is subject to the rules of a field's.
		if field, _, fault = readField("{{"+name+"}}", 0, asWritten, true); fault != nil {
			return nil, 0, position(s.text, open, fault.Code, fault.Detail)
		}
		if field.HasDefault || strings.Contains(name, "|") {
			return nil, 0, position(s.text, open, CodeDefault, "a section cannot have a default")
		}
	}
	if len(s.positions) >= MaxTags {
		return nil, 0, tooManyTags(s.text, open)
	}
	indent, next, alone := s.standalone(done, open, end)
	if alone {
		doc, end = doc[:len(doc)-indent], next
	}
	if kind != comment {
		s.anchor = append(s.anchor, anchor{len(doc), open})
		s.positions = append(s.positions, valuePosition{at: len(doc), field: field, start: open, end: end, kind: kind})
		doc = append(doc, probe)
	}
	return doc, end, nil
}

// standalone reports whether the tag is alone on its line: the length of the space before it and where
// the next line begins.
func (s *source) standalone(done, open, end int) (indent, next int, alone bool) {
	before := s.text[done:open]
	line := strings.LastIndexByte(before, '\n') + 1
	if line == 0 && done > 0 && s.text[done-1] != '\n' {
		return 0, 0, false
	}
	if strings.Trim(before[line:], " \t") != "" {
		return 0, 0, false
	}
	rest := strings.TrimLeft(s.text[end:], " \t")
	next = len(s.text) - len(rest)
	switch {
	case rest == "":
	case rest[0] == '\n':
		next++
	case strings.HasPrefix(rest, "\r\n"):
		next += len("\r\n")
	default:
		return 0, 0, false
	}
	return len(before) - line, next, true
}

// pair checks that each section is closed in the text or attribute in which it is opened. The markup
// between its tags then leaves a parser in the state in which it found it, so that the places of all
// fields are the same however often it is repeated.
func (s *source) pair() *Fault {
	var open []valuePosition
	for _, tag := range s.positions {
		switch tag.kind {
		case Section, Inverted:
			if len(open) >= maxDepth {
				return position(s.text, tag.start, CodeSectionDepth, fmt.Sprintf("sections can be nested at most %d levels deep", maxDepth))
			}
			open = append(open, tag)
		case End:
			if len(open) == 0 {
				return position(s.text, tag.start, CodeSection, "{{/"+tag.field.Name+"}} closes no section")
			}
			last := open[len(open)-1]
			open = open[:len(open)-1]
			if last.field.Name != tag.field.Name {
				return position(s.text, tag.start, CodeSection, "the section {{#"+last.field.Name+"}} must be closed before {{/"+tag.field.Name+"}}")
			}
			if last.container != tag.container {
				return position(s.text, tag.start, CodeSectionPlace, "a section must be closed in the text, title or attribute in which it is opened")
			}
		}
	}
	if len(open) > 0 {
		last := open[len(open)-1]
		return position(s.text, last.start, CodeSection, "the section {{#"+last.field.Name+"}} is not closed")
	}
	return nil
}

// Tag is a tag with the text before it.
type Tag struct {
	Literal string
	Kind    TagKind
	Field   Field
	place   place
}

// Check returns a code and a detail, which continues "the value", if a value is not allowed where the
// variable is.
func (t *Tag) Check(value string) (code, detail string) { return t.place.check(value) }

// AppendTo appends a value that passed Check as it must be written where the variable is.
func (t *Tag) AppendTo(dst []byte, value string) []byte { return t.place.append(dst, value) }

// Outline is a template with sections as a sequence of tags, in which each section is closed. It is
// immutable and may be shared.
type Outline struct {
	Tags []Tag
	Tail string // text after the last tag
}

// OutlineHTML is ParseHTML for a body with sections.
func OutlineHTML(text string) (*Outline, error) { return outlined(outline(text, kindHTML)) }

// OutlineText is ParseText for a body with sections.
func OutlineText(text string) (*Outline, error) { return outlined(outline(text, kindText)) }

// OutlineSubject is ParseSubject for a subject with sections. The caller checks the length of what is
// rendered.
func OutlineSubject(text string) (*Outline, error) { return outlined(outline(text, kindSubject)) }

// outlined prevents a nil *Fault from becoming a non-nil error.
func outlined(o *Outline, fault *Fault) (*Outline, error) {
	if fault != nil {
		return nil, fault
	}
	return o, nil
}

// partKind is the part of the email that a template is for.
type partKind int

const (
	kindHTML partKind = iota
	kindText
	kindSubject
)

func outline(text string, kind partKind) (*Outline, *Fault) {
	plain := asWritten
	if kind == kindHTML {
		plain = html.UnescapeString
	}
	src, fault := lexTags(text, plain, true)
	if fault != nil {
		return nil, fault
	}
	places := make([]place, len(src.positions))
	switch kind {
	case kindHTML:
		if places, fault = placeInMarkup(src); fault != nil {
			return nil, fault
		}
	case kindSubject:
		if fault = src.subjectFault(); fault != nil {
			return nil, fault
		}
		for i := range places {
			places[i] = placeLine
		}
	}
	if fault = src.pair(); fault != nil {
		return nil, fault
	}
	t, fault := src.template(places)
	if fault != nil {
		return nil, fault
	}
	o := &Outline{Tags: make([]Tag, len(src.positions)), Tail: t.tail}
	for i, s := range t.segments {
		o.Tags[i] = Tag{Literal: s.literal, Kind: src.positions[i].kind, Field: src.positions[i].field, place: s.place}
	}
	return o, nil
}
