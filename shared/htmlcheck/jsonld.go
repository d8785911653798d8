package htmlcheck

import (
	"encoding/json"
	"strings"

	"golang.org/x/net/html"
)

func scriptElement(tag string) *Violation {
	return finding{RuleScriptElement, "script elements are not allowed, except JSON-LD in <script type=\"application/ld+json\">"}.at(tag, "")
}

// isDataBlock reports whether a script element with these attributes holds JSON-LD,
// which mail clients read and none runs. Only attributes without effect may be
// beside its one type.
func isDataBlock(attrs []html.Attribute) bool {
	types := 0
	for _, a := range attrs {
		switch {
		case a.Key == "type":
			if !strings.EqualFold(strings.Trim(a.Val, " \t\r\n\f"), "application/ld+json") {
				return false
			}
			types++
		case a.Key == "id", a.Key == "class", strings.HasPrefix(a.Key, "data-"):
		default:
			return false
		}
	}
	return types == 1
}

// dataBlock checks the content of such an element. JSON runs nothing even where a
// client takes it for script; markup in it counts as if the element were left out, as
// clients do that remove the tags of script alone.
func (r *tokenReading) dataBlock(text string, found emit) (stop bool) {
	if strings.TrimSpace(text) != "" && !json.Valid([]byte(text)) {
		return found(finding{RuleScriptElement, "the content of a script element of JSON-LD must be valid JSON"}.at("script", ""))
	}
	// Behind these two an end tag need not end the element.
	if countFold(text, "<!--", "<script") > 0 {
		return found(finding{RuleScriptElement, "the content of a script element of JSON-LD must not contain <!-- or <script"}.at("script", ""))
	}
	if !hasTag(text) {
		return false
	}
	inner := tokenReading{visit: r.visit, live: true, foreign: true, limit: r.limit, lines: r.lines, line: r.line}
	return inner.read(text, found.within("script"))
}
