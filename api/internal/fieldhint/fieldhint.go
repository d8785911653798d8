// Package fieldhint explains unknown field names in a request: misspelled fields, fields of
// another part of the API, and fields of other email APIs. Package strictjson uses it for JSON
// bodies, package mailing for form parts, package query for query parameters.
package fieldhint

import (
	"slices"
	"strings"
	"unicode"
)

// Request describes the fields that a request has.
type Request struct {
	Noun  string   // "field", "part" or "parameter"
	Known []string // the paths of all fields: "to", "recipient.nome", "recipients[].email"
}

// Unknown returns a message about an unknown name in the object at the path in ("" for the
// outermost object). The message continues after the name and does not repeat it.
func (r Request) Unknown(in, name string) string {
	plain := normal(name)
	found := r.find(in, plain)
	if found != "" && (parentOf(found) == in || normal(found) == plain) {
		return r.suggestion(in, found)
	}
	for _, candidate := range aliases[plain] {
		if path := r.find(in, normal(candidate)); path != "" && parentOf(path) == in {
			return r.suggestion(in, path) + remarks[path]
		}
	}
	if found != "" {
		return r.suggestion(in, found)
	}
	for _, candidate := range aliases[plain] {
		if path := r.find(in, normal(candidate)); path != "" {
			return r.suggestion(in, path) + remarks[path]
		}
	}
	if r.isEmail() {
		if reason, known := unsupported[plain]; known {
			if reason == finishedHTML && slices.Contains(r.Known, "file") {
				reason = ownTemplate
			}
			return "is not supported: " + reason
		}
	}
	if location, known := otherLocations[plain]; known {
		return "is not a " + r.Noun + " here: " + location
	}
	if path := r.closest(in, plain); path != "" {
		return "is not a " + r.Noun + "; do you mean " + path + "?"
	}
	if len(r.Known) == 0 {
		return "is unknown: this request has no " + r.Noun + "s"
	}
	return "is not a " + r.Noun + " of this request, which has " + strings.Join(r.siblings(in), ", ")
}

// suggestion refers to the field that is probably meant.
func (r Request) suggestion(in, path string) string {
	if parentOf(path) == in {
		return "is not a " + r.Noun + "; " + path + " is"
	}
	return "is not a " + r.Noun + " here; " + path + " is"
}

// find returns the path of the field with this name, preferring the same object.
func (r Request) find(in, plain string) string {
	found := ""
	for _, path := range r.Known {
		if last := path[strings.LastIndexByte(path, '.')+1:]; normal(last) != plain && normal(path) != plain {
			continue
		}
		if parentOf(path) == in {
			return path
		}
		if found == "" {
			found = path
		}
	}
	return found
}

func parentOf(path string) string {
	if i := strings.LastIndexByte(path, '.'); i >= 0 {
		return path[:i]
	}
	return ""
}

// isEmail reports whether hints about fields of other email APIs apply.
func (r Request) isEmail() bool {
	return slices.Contains(r.Known, "html") && slices.Contains(r.Known, "subject")
}

// siblings returns the fields of the object.
func (r Request) siblings(in string) []string {
	var names []string
	for _, path := range r.Known {
		if parentOf(path) == in {
			names = append(names, path)
		}
	}
	return names
}

// closest returns the object's field within two typing errors of the name.
func (r Request) closest(in, plain string) string {
	best, nearest := "", 3
	for _, path := range r.siblings(in) {
		last := normal(path[strings.LastIndexByte(path, '.')+1:])
		if d := distance(plain, last); d < nearest && d*3 <= len(last) {
			best, nearest = path, d
		}
	}
	return best
}

// longest limits the names that are compared.
const longest = 40

// distance is the Levenshtein distance.
func distance(a, b string) int {
	if len(a) > longest || len(b) > longest {
		return longest
	}
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			cost := 1
			if a[i] == b[j] {
				cost = 0
			}
			diagonal, row[j+1] = row[j+1], min(row[j+1]+1, row[j]+1, diagonal+cost)
		}
	}
	return row[len(b)]
}

// normal removes differences in case, _ and - from a name.
func normal(name string) string {
	return strings.Map(func(c rune) rune {
		switch {
		case unicode.IsLetter(c), unicode.IsDigit(c):
			return unicode.ToLower(c)
		}
		return -1
	}, name[:min(len(name), 4*longest)])
}
