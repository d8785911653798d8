package mailmerge

import (
	"fmt"
	"sort"
	"strings"
	"unicode"
	"unicode/utf8"
)

// maxName is the maximum length of a field's name in characters.
const maxName = 100

// probe replaces a value while a template is parsed. It is a letter because a letter has the most
// effects: it begins a tag after "<" and continues a reference after "&".
const probe = 'x'

// source is a template split into document and fields.
type source struct {
	text      string
	doc       string // text with \{{ resolved and each field replaced by the probe
	positions []valuePosition
	anchor    []anchor
}

// valuePosition is the position of a value in doc.
type valuePosition struct {
	at         int // offset of the probe
	field      Field
	start, end int // the field in text, with its braces
	kind       TagKind
	container  int // the text or attribute that it is in, for sections
}

// anchor maps a position in doc to one in text.
type anchor struct{ doc, text int }

// lex finds the fields and resolves the escapes. plain converts a default as written in the
// document to plain text.
func lex(text string, plain func(string) string) (*source, *Fault) {
	return lexTags(text, plain, false)
}

// lexTags is lex for templates that may have sections and comments too.
func lexTags(text string, plain func(string) string, sections bool) (*source, *Fault) {
	src := &source{text: text, anchor: []anchor{{0, 0}}}
	if i := notText(text); i >= 0 {
		return nil, position(text, i, CodeNotText, "a template must be valid UTF-8 without NUL characters")
	}
	doc := make([]byte, 0, len(text))
	done := 0
	for {
		i := strings.Index(text[done:], "{{")
		if i < 0 {
			break
		}
		before := text[done : done+i]
		open := done + i
		slashes := len(before) - len(strings.TrimRight(before, `\`))
		kind := Variable
		if sections {
			kind = tagKind(text[open:])
		}
		switch {
		case slashes%2 == 1:
			doc = append(doc, before[:len(before)-slashes+slashes/2]...)
			doc = append(doc, "{{"...)
			done = open + len("{{")
		case kind != Variable:
			doc = append(doc, before[:len(before)-slashes+slashes/2]...)
			var fault *Fault
			if doc, done, fault = src.section(doc, kind, done, open); fault != nil {
				return nil, fault
			}
		case len(src.positions) >= MaxTags:
			return nil, tooManyTags(text, open)
		default:
			doc = append(doc, before[:len(before)-slashes+slashes/2]...)
			field, end, fault := readField(text, open, plain, sections)
			if fault != nil {
				return nil, fault
			}
			src.anchor = append(src.anchor, anchor{len(doc), open})
			src.positions = append(src.positions, valuePosition{at: len(doc), field: field, start: open, end: end})
			doc = append(doc, probe)
			done = end
		}
		src.anchor = append(src.anchor, anchor{len(doc), done})
	}
	src.doc = string(append(doc, text[done:]...))
	return src, nil
}

// readField parses the field whose braces open at i and returns where it ends.
func readField(text string, i int, plain func(string) string, sections bool) (field Field, end int, fault *Fault) {
	inside := text[i+len("{{"):]
	trimmed := strings.TrimLeft(inside, " \t\r\n")
	if trimmed != "" && strings.IndexByte("{#/>!&^=", trimmed[0]) >= 0 {
		if sections {
			return Field{}, 0, position(text, i, CodeUnsupported, unsupported(trimmed[0]))
		}
		return Field{}, 0, position(text, i, CodeUnsupported,
			"only plain fields like {{name}} can be used: no {{"+trimmed[:1]+"; write \\{{ for two literal braces")
	}
	n := strings.IndexFunc(inside, func(r rune) bool { return !isNameRune(r) && !strings.ContainsRune("\t\r\n", r) })
	until, _, closed := strings.Cut(inside, "}}")
	hasDefault := n >= 0 && inside[n] == '|'
	if n < 0 || !strings.HasPrefix(inside[n:], "}}") && !hasDefault || !closed {
		if !closed || strings.Contains(until, "{{") {
			return Field{}, 0, position(text, i, CodeUnclosed, "the field is not closed: }} is missing; write \\{{ for two literal braces")
		}
		r, _ := utf8.DecodeRuneInString(inside[n:])
		return Field{}, 0, position(text, i, CodeName, badName(r))
	}
	name := strings.Trim(inside[:n], " \t\r\n")
	switch {
	case name == "":
		return Field{}, 0, position(text, i, CodeEmpty, "the field has no name; write \\{{ for two literal braces")
	case strings.ContainsAny(name, "\t\r\n"):
		return Field{}, 0, position(text, i, CodeName, "a field's name must be on one line, without tabs")
	case !strings.ContainsFunc(name, func(r rune) bool { return unicode.IsLetter(r) || unicode.IsDigit(r) }):
		if sections && name == current && !hasDefault {
			break
		}
		return Field{}, 0, position(text, i, CodeName, "a field's name must have at least one letter or digit")
	case utf8.RuneCountInString(name) > maxName:
		return Field{}, 0, position(text, i, CodeNameLength, fmt.Sprintf("a field's name must have at most %d characters", maxName))
	}
	end = i + len("{{") + len(until) + len("}}")
	if !hasDefault {
		return Field{Name: name}, end, nil
	}
	field, detail := withDefault(name, plain(until[n+1:]))
	if detail == "" && strings.HasPrefix(text[end:], "}") {
		detail = noBraces
	}
	if detail != "" {
		return Field{}, 0, position(text, i, CodeDefault, detail)
	}
	return field, end, nil
}

func badName(r rune) string {
	return fmt.Sprintf("a field's name may contain letters, digits, spaces, currency signs and any of %s, but not %q; write \\{{ for two literal braces", nameSigns, r)
}

// nameSigns are the signs of column names such as Valor (R$), but none that HTML or the syntax of fields uses.
const nameSigns = "_-./()[]%#+*:,?!@°§"

func isNameRune(r rune) bool {
	return isPlainRune(r) || unicode.Is(unicode.Sc, r) || strings.ContainsRune(nameSigns, r)
}

// isPlainRune reports whether the names of all releases may contain the character. Marks are part of letters in many
// scripts, and of a decomposed é.
func isPlainRune(r rune) bool {
	return unicode.IsLetter(r) || unicode.IsMark(r) || unicode.IsDigit(r) || strings.ContainsRune(" _-./", r)
}

// notText returns the first position that is not UTF-8 or is NUL, or -1.
func notText(text string) int {
	nul := strings.IndexByte(text, 0)
	if utf8.ValidString(text) {
		return nul
	}
	for i, r := range text {
		if r == utf8.RuneError {
			if _, size := utf8.DecodeRuneInString(text[i:]); size == 1 {
				if nul >= 0 {
					return min(i, nul)
				}
				return i
			}
		}
	}
	return nul
}

// fault is a Fault at an offset of doc.
func (s *source) fault(at int, code, detail string) *Fault {
	i := sort.Search(len(s.anchor), func(i int) bool { return s.anchor[i].doc > at }) - 1
	return position(s.text, s.anchor[i].text+at-s.anchor[i].doc, code, detail)
}

// position is a Fault at an offset of text.
func position(text string, at int, code, detail string) *Fault {
	before := text[:min(at, len(text))]
	line := before[strings.LastIndexByte(before, '\n')+1:]
	return &Fault{
		Code: code, Detail: detail,
		Line: 1 + strings.Count(before, "\n"), Column: 1 + utf8.RuneCountInString(line),
	}
}

// template joins the document's literals with the places of the fields, and checks that their
// defaults are valid there.
func (s *source) template(places []place) (*Template, *Fault) {
	for i, value := range s.positions {
		if value.field.Default == "" {
			continue
		}
		if code, detail := places[i].check(value.field.Default); code != "" {
			return nil, s.fault(value.at, CodeDefault, "the default "+detail)
		}
	}
	return s.join(places), nil
}

func (s *source) join(places []place) *Template {
	t := &Template{source: s, segments: make([]segment, len(s.positions))}
	index := make(map[Field]int)
	done := 0
	for i, value := range s.positions {
		field, known := index[value.field]
		if !known {
			field = len(t.fields)
			index[value.field] = field
			t.fields = append(t.fields, value.field)
		}
		t.segments[i] = segment{literal: s.doc[done:value.at], field: field, place: places[i]}
		done = value.at + 1
	}
	t.tail = s.doc[done:]
	return t
}
