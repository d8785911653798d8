package mailing

import (
	"fmt"

	"email-gateway/shared/email"
	"email-gateway/shared/rules"
)

// Limits of what templates make each entry store. An entry stores a value for each different field and for each
// different default, so that without them a line of twenty bytes could become an entry of half a megabyte.
const (
	// maxPerColumn limits the fields that differ in their default or spelling and have the same column: each of them
	// stores the cell.
	maxPerColumn = 8
	// maxDefaults limits the defaults together (bytes): each may be stored with each line.
	maxDefaults = 4 << 10
)

// entryLimits adds up what an entry stores.
type entryLimits struct {
	perColumn map[int]int
	defaults  int
	fault     *rules.Fault // of the field that exceeds a limit first
}

// add counts a field of the part that differs from those before it.
func (l *entryLimits) add(part, name string, column int, byDefault string) {
	if l.perColumn == nil {
		l.perColumn = map[int]int{}
	}
	l.perColumn[column]++
	l.defaults += len(byDefault)
	message := ""
	switch {
	case l.fault != nil:
		return
	case l.perColumn[column] > maxPerColumn:
		message = fmt.Sprintf("uses the column of {{%s}} with more than %d different defaults or spellings of its name: use fewer", name, maxPerColumn)
	case l.defaults > maxDefaults:
		message = fmt.Sprintf("has defaults that are too long: the different defaults of a mailing must have at most %d bytes together", maxDefaults)
	default:
		return
	}
	l.fault = &rules.Fault{Field: part, Code: email.CodeInvalidTemplate, Message: message}
}

// addTo adds the fault, if there is one.
func (l *entryLimits) addTo(faults []rules.Fault) []rules.Fault {
	if l.fault == nil {
		return faults
	}
	return append(faults, *l.fault)
}
