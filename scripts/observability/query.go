// Package observability reads the alert rules and the dashboard that stand beside it, so
// that tests can hold them to what the programs show and to what OPERATIONS.md says.
//
// It understands as much of PromQL as they use, and refuses the rest: Prometheus's own
// parser would bring its storage and a hundred modules with it.
package observability

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
)

// Query is one PromQL expression, and where it stands.
type Query struct {
	Where string // such as "alert EmailsFailing" or "panel Requests"
	Expr  string
}

// Selector is a metric as a query asks for it.
type Selector struct {
	// Metric is the name of the family: that of a histogram has no _bucket.
	Metric   string
	Matchers []Matcher
	// Grouped are the labels that the query groups the metric's series by.
	Grouped []string
}

// Matcher is a condition on a label.
type Matcher struct {
	Label, Operator, Value string
}

// Matches says whether a label's value meets the condition.
func (m Matcher) Matches(value string) bool {
	switch m.Operator {
	case "=":
		return value == m.Value
	case "!=":
		return value != m.Value
	}
	met, err := regexp.MatchString("^(?:"+m.Value+")$", value)
	return err == nil && met == (m.Operator == "=~")
}

// Selectors are the metrics that the query asks for. Its error says what is wrong with
// the expression.
func (q Query) Selectors() ([]Selector, error) {
	// Grafana fills in its variables before Prometheus sees them.
	all, err := tokens(strings.NewReplacer("$__rate_interval", "1m", "$__interval", "1m").Replace(q.Expr))
	p := reader{rest: all}
	if err == nil {
		_, err = p.expression(0)
	}
	switch {
	case err != nil:
	case p.peek().kind != end:
		err = fmt.Errorf("%q is too much", p.peek().text)
	case len(p.found) == 0:
		err = fmt.Errorf("it asks for no metric")
	}
	if err != nil {
		return nil, fmt.Errorf("%s: read %q: %w", q.Where, q.Expr, err)
	}
	return p.found, nil
}

// reader reads an expression from left to right.
type reader struct {
	rest    []token
	grouped []string // by the aggregations around
	found   []Selector
}

func (p *reader) peek() token { return p.rest[0] }

func (p *reader) next() token {
	t := p.rest[0]
	if t.kind != end {
		p.rest = p.rest[1:]
	}
	return t
}

// is takes the symbol or keyword, if it comes next.
func (p *reader) is(word string) bool {
	if t := p.peek(); t.text != word || t.kind != symbol && t.kind != name {
		return false
	}
	p.next()
	return true
}

func (p *reader) want(word string) error {
	if !p.is(word) {
		return fmt.Errorf("%q expected before %q", word, p.peek().text)
	}
	return nil
}

// result is what an expression makes: PromQL's types, as far as they matter here.
type result int

const (
	scalar  result = iota
	instant        // one value per series
	window         // several, of a stretch of time
)

// levels are the binary operators by how strongly they bind.
var levels = [][]string{{"or"}, {"and", "unless"}, {"==", "!=", ">", "<", ">=", "<="}, {"+", "-"}, {"*", "/", "%"}, {"^"}}

func (p *reader) expression(level int) (result, error) {
	if level == len(levels) {
		return p.operand()
	}
	left, err := p.expression(level + 1)
	for err == nil && slices.Contains(levels[level], p.peek().text) && p.peek().kind != text {
		operator := p.next().text
		if err = p.matching(); err != nil {
			break
		}
		var right result
		if right, err = p.expression(level + 1); err == nil && (left == window || right == window) {
			err = fmt.Errorf("%q stands beside a stretch of time", operator)
		}
		left = max(left, right)
	}
	return left, err
}

// matching reads on (), if it comes next: series of both sides go together whatever their
// labels.
func (p *reader) matching() error {
	if !p.is("on") {
		return nil
	}
	if err := p.want("("); err != nil {
		return err
	}
	return p.want(")")
}

func (p *reader) operand() (result, error) {
	t := p.next()
	switch {
	case t.kind == number:
		return scalar, nil
	case t.kind == symbol && t.text == "-":
		return p.operand()
	case t.kind == symbol && t.text == "(":
		r, err := p.expression(0)
		if err == nil {
			err = p.want(")")
		}
		return r, err
	case t.kind == name && slices.Contains(aggregations, t.text):
		return p.aggregation(t.text)
	case t.kind == name && functions[t.text] != nil && p.peek().text == "(":
		return p.call(t.text)
	case t.kind == name && p.peek().text == "(":
		return 0, fmt.Errorf("there is no function %q", t.text)
	case t.kind == name:
		return p.selector(t.text)
	}
	return 0, fmt.Errorf("a metric, a function or a number expected before %q", t.text)
}

// selector reads what follows a metric's name: {…}, [5m], offset 1h.
func (p *reader) selector(metric string) (result, error) {
	s := Selector{Metric: family(metric), Grouped: slices.Clone(p.grouped)}
	if p.is("{") {
		for !p.is("}") {
			m := Matcher{Label: p.next().text, Operator: p.next().text}
			value := p.next()
			m.Value = value.text
			_, err := regexp.Compile(m.Value)
			if value.kind != text || !slices.Contains([]string{"=", "!=", "=~", "!~"}, m.Operator) || err != nil {
				return 0, fmt.Errorf("%s has a condition that is none: %s%s%q", metric, m.Label, m.Operator, m.Value)
			}
			s.Matchers = append(s.Matchers, m)
			if !p.is(",") && p.peek().text != "}" {
				return 0, fmt.Errorf("%q expected behind the conditions of %s", "}", metric)
			}
		}
	}
	r := instant
	if p.is("[") {
		if t := p.next(); t.kind != length {
			return 0, fmt.Errorf("%s[%s] is no stretch of time", metric, t.text)
		}
		if err := p.want("]"); err != nil {
			return 0, err
		}
		r = window
	}
	if p.is("offset") && p.next().kind != length {
		return 0, fmt.Errorf("the offset of %s is no duration", metric)
	}
	p.found = append(p.found, s)
	return r, nil
}

// family is the name under which a metric is declared.
func family(series string) string {
	for _, suffix := range []string{"_bucket", "_sum"} {
		if name, is := strings.CutSuffix(series, suffix); is {
			return name
		}
	}
	if name, is := strings.CutSuffix(series, "_seconds_count"); is {
		return name + "_seconds"
	}
	return series
}
