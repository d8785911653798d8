// Package observability reads the alert rules and the dashboard of this folder, so that tests can
// compare them with the programs' metrics and with OPERATIONS.md. scripts/check.sh runs the rules'
// own tests with promtool.
package observability

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/VictoriaMetrics/metricsql"
)

// Query is one PromQL expression and its location.
type Query struct {
	Where string // such as "alert EmailsFailing" or "panel Requests"
	Expr  string
}

// Selector is a metric selector of a query.
type Selector struct {
	// Metric is the name of the metric family: without _bucket for a histogram.
	Metric   string
	Matchers []Matcher
	// Grouped are the labels by which the query groups the metric's series.
	Grouped []string
}

// Matcher is a condition on a label.
type Matcher struct {
	Label, Operator, Value string
}

// Matches reports whether a label's value meets the condition.
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

// Selectors returns the metric selectors of the query, from left to right, or an error if the
// expression is invalid.
func (q Query) Selectors() ([]Selector, error) {
	// Grafana fills in its variables before Prometheus sees them.
	expression, err := metricsql.Parse(strings.NewReplacer("$__rate_interval", "1m", "$__interval", "1m").Replace(q.Expr))
	if err != nil {
		return nil, fmt.Errorf("%s: read %q: %w", q.Where, q.Expr, err)
	}
	found, err := selectors(expression, nil)
	if err == nil && len(found) == 0 {
		err = errors.New("it has no metric")
	}
	if err != nil {
		return nil, fmt.Errorf("%s: read %q: %w", q.Where, q.Expr, err)
	}
	return found, nil
}

// selectors returns the selectors of an expression grouped by the labels.
func selectors(expression metricsql.Expr, grouped []string) ([]Selector, error) {
	var operands []metricsql.Expr
	switch e := expression.(type) {
	case *metricsql.MetricExpr:
		s, err := selector(e, grouped)
		return []Selector{s}, err
	case *metricsql.RollupExpr:
		operands = []metricsql.Expr{e.Expr}
	case *metricsql.FuncExpr:
		operands = e.Args
	case *metricsql.BinaryOpExpr:
		operands = []metricsql.Expr{e.Left, e.Right}
	case *metricsql.AggrFuncExpr:
		operands = e.Args
		// le is a label of every histogram, and is ignored.
		grouped = slices.DeleteFunc(slices.Concat(grouped, e.Modifier.Args), func(label string) bool { return label == "le" })
	}
	var all []Selector
	for _, operand := range operands {
		found, err := selectors(operand, grouped)
		if err != nil {
			return nil, err
		}
		all = append(all, found...)
	}
	return all, nil
}

func selector(e *metricsql.MetricExpr, grouped []string) (Selector, error) {
	if len(e.LabelFilterss) != 1 {
		return Selector{}, fmt.Errorf("%s has alternatives, which Prometheus does not support", e.AppendString(nil))
	}
	s := Selector{Grouped: grouped}
	for _, f := range e.LabelFilterss[0] {
		operator := "="
		switch {
		case f.IsNegative && f.IsRegexp:
			operator = "!~"
		case f.IsNegative:
			operator = "!="
		case f.IsRegexp:
			operator = "=~"
		}
		if f.Label == "__name__" && operator == "=" {
			s.Metric = family(f.Value)
			continue
		}
		s.Matchers = append(s.Matchers, Matcher{Label: f.Label, Operator: operator, Value: f.Value})
	}
	return s, nil
}

// family returns the name under which a metric is declared.
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
