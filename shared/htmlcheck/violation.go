package htmlcheck

import (
	"strconv"
	"strings"
)

// Codes of the rules a body can break. They are stored and shown to tenants:
// add new ones, never rename.
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

// Refusals that concern the body as a whole. Compare with errors.Is.
var (
	ErrEmpty      = &Violation{Rule: "HTML_EMPTY", Detail: "the body is empty"}
	ErrTooLarge   = &Violation{Rule: "HTML_TOO_LARGE", Detail: "the body is larger than 524288 bytes of UTF-8"}
	ErrTooDeep    = &Violation{Rule: "HTML_TOO_DEEP", Detail: "elements are nested deeper than 512"}
	ErrTooComplex = &Violation{Rule: "HTML_TOO_COMPLEX", Detail: "too many html or body elements for a body of this size"}
	ErrNotUTF8    = &Violation{Rule: "HTML_NOT_UTF8", Detail: "the body is not valid UTF-8"}
	ErrNUL        = &Violation{Rule: "HTML_NUL", Detail: "the body contains a NUL character"}
)

// Violation says which rule a body breaks and at which element. It never
// quotes the body beyond names of elements and attributes, so it may be logged.
type Violation struct {
	Rule   string // stable code
	Where  string // "td/onclick"; empty when the body as a whole is meant
	Detail string // one sentence for people
	Line   int    // of the body, from 1; 0 = not known. Only CheckAll says it
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

// within returns a copy that names the enclosing place too.
func (v *Violation) within(place string) *Violation {
	inner := *v
	inner.Where = strings.TrimSuffix(place+" > "+v.Where, " > ")
	return &inner
}

// inLine returns a copy with a line, unless it has one that is closer.
func (v *Violation) inLine(line int) *Violation {
	if v.Line > 0 {
		return v
	}
	numbered := *v
	numbered.Line = line
	return &numbered
}

// finding is a broken rule before its place is known.
type finding struct{ rule, detail string }

func (f finding) at(tag, attribute string) *Violation {
	where := printable(tag)
	if attribute != "" {
		where += "/" + printable(attribute)
	}
	return &Violation{Rule: f.rule, Where: where, Detail: f.detail}
}

// maxName keeps a name made up by the sender from filling a log line.
const maxName = 40

// printable cuts a name of the body to what may stand in logs and answers.
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
