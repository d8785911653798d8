// Package fieldhint explains names that a request does not have: a misspelled field, one
// that belongs elsewhere in the contract, or one that other email APIs know. Package
// strictjson uses it for JSON bodies, package mailing for the parts of a form, package httpapi
// for query parameters.
package fieldhint

import (
	"slices"
	"strings"
	"unicode"
)

// Request is what a request has instead.
type Request struct {
	Noun  string   // "field", "part" or "parameter"
	Known []string // the paths of all fields: "to", "recipient.nome", "recipients[].email"
}

// Unknown is what to say of a name that the object at the path in does not have; in is ""
// for the outermost one. It begins behind the name, and repeats nothing of it.
func (r Request) Unknown(in, name string) string {
	plain := normal(name)
	found := r.find(in, plain)
	if found != "" && (parentOf(found) == in || normal(found) == plain) {
		return r.instead(in, found)
	}
	for _, candidate := range aliases[plain] {
		if path := r.find(in, normal(candidate)); path != "" && parentOf(path) == in {
			return r.instead(in, path) + remarks[path]
		}
	}
	if found != "" {
		return r.instead(in, found)
	}
	for _, candidate := range aliases[plain] {
		if path := r.find(in, normal(candidate)); path != "" {
			return r.instead(in, path) + remarks[path]
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
	if place, known := elsewhere[plain]; known {
		return "is not a " + r.Noun + " here: " + place
	}
	if path := r.closest(in, plain); path != "" {
		return "is not a " + r.Noun + "; do you mean " + path + "?"
	}
	return "is not a " + r.Noun + " of this request, which has " + strings.Join(r.siblings(in), ", ")
}

// instead names the field that is meant.
func (r Request) instead(in, path string) string {
	if parentOf(path) == in {
		return "is not a " + r.Noun + "; " + path + " is"
	}
	return "is not a " + r.Noun + " here; " + path + " is"
}

// find is the path of the field with this name, one of the same object first.
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

// isEmail: what other APIs know of emails is not said of other requests.
func (r Request) isEmail() bool {
	return slices.Contains(r.Known, "html") && slices.Contains(r.Known, "subject")
}

// siblings are the fields of the object.
func (r Request) siblings(in string) []string {
	var names []string
	for _, path := range r.Known {
		if parentOf(path) == in {
			names = append(names, path)
		}
	}
	return names
}

// closest is the field of the object that a typing error or two away has this name.
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

// longest is as long as a name that is worth comparing.
const longest = 40

// distance counts the letters to insert, delete or replace (Levenshtein).
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

// normal is a name without what people write differently: capitals, _ and -.
func normal(name string) string {
	return strings.Map(func(c rune) rune {
		switch {
		case unicode.IsLetter(c), unicode.IsDigit(c):
			return unicode.ToLower(c)
		}
		return -1
	}, name[:min(len(name), 4*longest)])
}
