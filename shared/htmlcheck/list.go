package htmlcheck

import "strings"

// emit receives a violation and returns whether the reading must stop.
type emit func(*Violation) (stop bool)

// within is an emit for violations inside of something else.
func (e emit) within(place string) emit {
	return func(v *Violation) bool { return e(v.within(place)) }
}

// list collects violations. Several readings find the same one, so each counts those of the same
// kind, and adds only those beyond the number found by an earlier reading.
type list struct {
	limit int
	lines bool // readings of tokens report the line
	all   []*Violation
	met   map[Violation]int // in this reading
	known map[Violation]int // in any reading
}

// nextReading resets the counts.
func (l *list) nextReading() { l.met = nil }

// add stores a violation that no reading has found before.
func (l *list) add(v *Violation) (stop bool) {
	if l.limit > 1 && !l.isNew(*v) {
		return false
	}
	l.all = append(l.all, v)
	return len(l.all) >= l.limit
}

// isNew: a tree has no lines and no namespaces, so it only adds violations that were not found
// elsewhere.
func (l *list) isNew(v Violation) bool {
	if l.met == nil {
		l.met = make(map[Violation]int)
	}
	if l.known == nil {
		l.known = make(map[Violation]int)
	}
	anywhere := v
	anywhere.Line, anywhere.Where = 0, v.Where[:strings.LastIndexByte(v.Where, '/')+1]+localName(v.Where[strings.LastIndexByte(v.Where, '/')+1:])
	l.met[v]++
	if l.met[v] <= l.known[v] || v.Line == 0 && l.known[anywhere] > 0 {
		return false
	}
	l.known[v] = l.met[v]
	if v.Line > 0 {
		l.known[anywhere]++
	}
	return true
}
