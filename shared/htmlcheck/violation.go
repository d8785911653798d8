package htmlcheck

import (
	"strconv"
	"strings"
)

// Codes of the rules for a body. They are stored and shown to tenants: add new ones, never rename.
const (
	RuleScriptElement     = "SCRIPT_ELEMENT"
	RuleEventHandler      = "EVENT_HANDLER"
	RuleScriptURL         = "SCRIPT_URL"
	RuleLocalURL          = "LOCAL_URL"
	RuleDataURL           = "DATA_URL"
	RuleCSSExpression     = "CSS_EXPRESSION"
	RuleCSSBinding        = "CSS_BINDING"
	RuleObscured          = "OBSCURED"
	RuleAnimatedAttribute = "ANIMATED_ATTRIBUTE"
	RuleNestedDocument    = "NESTED_DOCUMENT"
	RuleUnparsable        = "UNPARSABLE"
)

// Violations of the body as a whole. Compare with errors.Is.
var (
	ErrEmpty      = &Violation{Rule: "HTML_EMPTY", Detail: "the body is empty"}
	ErrTooLarge   = &Violation{Rule: "HTML_TOO_LARGE", Detail: "the body is larger than 524288 bytes of UTF-8"}
	ErrTooDeep    = &Violation{Rule: "HTML_TOO_DEEP", Detail: "elements are nested deeper than 512 levels"}
	ErrTooComplex = &Violation{Rule: "HTML_TOO_COMPLEX", Detail: "too many html or body elements for a body of this size"}
	ErrNotUTF8    = &Violation{Rule: "HTML_NOT_UTF8", Detail: "the body is not valid UTF-8"}
	ErrNUL        = &Violation{Rule: "HTML_NUL", Detail: "the body contains a NUL character"}
)

// Violation is a violated rule with its element. It never quotes the body beyond names of elements
// and attributes, so it may be logged.
type Violation struct {
	Rule   string // stable code
	Where  string // "td/onclick"; empty for the body as a whole
	Detail string // one sentence for the user
	Line   int    // of the body, from 1; 0 = unknown. Only set by CheckAll
}

// Error joins rule, place and detail.
func (v *Violation) Error() string {
	text := v.Rule
	if v.Where != "" {
		text += " at " + v.Where
	}
	if v.Line > 0 {
		text += " in line " + strconv.Itoa(v.Line)
	}
	return text + ": " + v.Detail
}

// Is reports whether target is a violation of the same rule.
func (v *Violation) Is(target error) bool {
	t, ok := target.(*Violation)
	return ok && t.Rule == v.Rule
}

// within returns a copy with the enclosing place.
func (v *Violation) within(place string) *Violation {
	inner := *v
	inner.Where = strings.TrimSuffix(place+" > "+v.Where, " > ")
	return &inner
}

// inLine returns a copy with a line, unless it has a more precise one.
func (v *Violation) inLine(line int) *Violation {
	if v.Line > 0 {
		return v
	}
	numbered := *v
	numbered.Line = line
	return &numbered
}

// finding is a violated rule before its place is known.
type finding struct{ rule, detail string }

func (f finding) at(tag, attribute string) *Violation {
	where := printable(tag)
	if attribute != "" {
		where += "/" + printable(attribute)
	}
	return &Violation{Rule: f.rule, Where: where, Detail: f.detail}
}

// maxName keeps a long name in the body from filling a log line.
const maxName = 40

// printable shortens a name from the body for logs and responses.
func printable(name string) string {
	if len(name) > maxName {
		name = name[:maxName]
	}
	return strings.Map(func(r rune) rune {
		switch {
		case 'a' <= r && r <= 'z', 'A' <= r && r <= 'Z', '0' <= r && r <= '9', strings.ContainsRune("-_.:", r):
			return r
		}
		return '?'
	}, name)
}
