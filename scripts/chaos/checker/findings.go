package checker

import (
	"fmt"
	"maps"
	"slices"
)

// Finding is a promise that was not kept.
type Finding struct {
	Promise  string   `json:"promise"`
	Count    int      `json:"count"`
	Examples []string `json:"examples"`
}

// maxExamples keeps a report readable when everything went wrong.
const maxExamples = 10

// Findings are the findings of a run, by promise.
type Findings struct{ byPromise map[string]*Finding }

// NewFindings returns no findings.
func NewFindings() *Findings { return &Findings{make(map[string]*Finding)} }

// Add adds a finding.
func (f *Findings) Add(promise, format string, args ...any) {
	found := f.byPromise[promise]
	if found == nil {
		found = &Finding{Promise: promise}
		f.byPromise[promise] = found
	}
	found.Count++
	if len(found.Examples) < maxExamples {
		found.Examples = append(found.Examples, fmt.Sprintf(format, args...))
	}
}

// Count returns the number of findings of one promise so far.
func (f *Findings) Count(promise string) int {
	if found := f.byPromise[promise]; found != nil {
		return found.Count
	}
	return 0
}

func (f *Findings) list() []Finding {
	list := make([]Finding, 0, len(f.byPromise))
	for _, promise := range slices.Sorted(maps.Keys(f.byPromise)) {
		list = append(list, *f.byPromise[promise])
	}
	return list
}
