package settings

import (
	"fmt"
	"regexp"
	"strings"
	"unicode"
	"unicode/utf8"
)

// meaningOf turns a field's comment, "Addr is the address of the api.", into the description of its
// variable, "The address of the api.", and replaces names of fields by names of variables.
func meaningOf(f field, all []field) (string, error) {
	rest, ok := strings.CutPrefix(f.comment, f.name)
	if !ok || rest == "" {
		return "", fmt.Errorf("the comment of %s (%s) must begin with its name: it is the description in CONFIGURATION.md", f.name, f.variable)
	}
	for _, opening := range []string{": ", " is ", " are ", " "} {
		if after, found := strings.CutPrefix(rest, opening); found {
			rest = after
			break
		}
	}
	for _, other := range all {
		rest = regexp.MustCompile(`\b`+other.name+`\b`).ReplaceAllLiteralString(rest, other.variable)
	}
	first, size := utf8.DecodeRuneInString(rest)
	return string(unicode.ToUpper(first)) + rest[size:], nil
}
