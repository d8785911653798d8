package settings

import (
	"fmt"
	"regexp"
	"strings"
	"unicode"
	"unicode/utf8"
)

// meaningOf turns a field's comment, "Addr is where requests are answered.", into what
// is said of its variable, "Where requests are answered.", with the names of variables
// in place of those of fields.
func meaningOf(f field, all []field) (string, error) {
	rest, ok := strings.CutPrefix(f.comment, f.name)
	if !ok || rest == "" {
		return "", fmt.Errorf("the comment of %s (%s) must begin with its name: it is what README.md says of it", f.name, f.variable)
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
