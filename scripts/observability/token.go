package observability

import (
	"errors"
	"fmt"
	"regexp"
	"strings"
)

// token is a word of PromQL. Kind says what it is; Text is as it stands there, without
// the quotes of a string.
type token struct {
	kind kind
	text string
}

type kind int

const (
	end    kind = iota
	name        // a metric, a function, a label or a keyword
	number      // 0.99
	length      // 10m, 1h30m
	text        // "…" or '…'
	symbol      // an operator or a bracket
)

// The longest of those that fit counts, so a duration comes before a number, and >= before >.
var words = []struct {
	kind    kind
	pattern *regexp.Regexp
}{
	{length, regexp.MustCompile(`^([0-9]+(ms|[smhdwy]))+\b`)},
	{number, regexp.MustCompile(`^([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?`)},
	{name, regexp.MustCompile(`^[a-zA-Z_:][a-zA-Z0-9_:]*`)},
	{text, regexp.MustCompile(`^("(\\.|[^"\\\n])*"|'(\\.|[^'\\\n])*')`)},
	{symbol, regexp.MustCompile(`^(=~|!~|==|!=|>=|<=|[-+*/%^(){}\[\],=<>])`)},
}

// tokens cuts a query into its words.
func tokens(query string) ([]token, error) {
	var all []token
	for rest := strings.TrimSpace(query); rest != ""; rest = strings.TrimSpace(rest) {
		found := false
		for _, w := range words {
			match := w.pattern.FindString(rest)
			if match == "" {
				continue
			}
			rest, found = rest[len(match):], true
			if w.kind == text {
				match = match[1 : len(match)-1]
			}
			all = append(all, token{w.kind, match})
			break
		}
		if !found {
			return nil, fmt.Errorf("nothing of PromQL begins with %q", rest)
		}
	}
	if len(all) == 0 {
		return nil, errors.New("the query is empty")
	}
	return append(all, token{kind: end}), nil
}
