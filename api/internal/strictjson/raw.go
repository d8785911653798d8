package strictjson

import (
	"strconv"

	"email-gateway/shared/rules"
)

// container is an object or array around the current position in a raw value.
type container struct {
	object bool
	name   string // of the current field of an object
	index  int    // of the current element of an array
}

func (c container) piece() string {
	if c.object {
		return "." + c.name
	}
	return "[" + strconv.Itoa(c.index) + "]"
}

// HasBadCharacter reports whether Read would reject a string or name of the document for its characters.
func (d Document) HasBadCharacter() bool {
	var w decoder
	w.checkRaw(d.text)
	return len(w.faults) > 0
}

// checkRaw reports the strings and names of a raw value that text would reject. It reads the value once
// and does not recurse, because the client chooses its size and depth.
func (d *decoder) checkRaw(value string) {
	var open []container
	name := false // the next string is the name of a field
	for i := 0; i < len(value) && len(d.faults) < rules.MaxFaults; {
		last := len(open) - 1
		switch value[i] {
		case '"':
			literal := value[i:skipString(value, i)]
			i += len(literal)
			text, err := storable(literal)
			switch {
			case name && err != nil:
				d.faultIn(open[:last], "has a name that "+err.Error())
			case err != nil:
				d.faultIn(open, err.Error())
			}
			if name {
				open[last].name, name = text, false
			}
			continue
		case '{', '[':
			name = value[i] == '{'
			open = append(open, container{object: name})
		case '}', ']':
			open, name = open[:last], false
		case ',':
			open[last].index++
			name = open[last].object
		}
		i++
	}
}

// faultIn reports a bad character within a raw value. Below maxDepth it names the object or array around it.
func (d *decoder) faultIn(open []container, message string) {
	known := len(d.path)
	for _, c := range open[:min(len(open), maxDepth)] {
		d.path = append(d.path, c.piece())
	}
	d.fault(rules.CodeBadCharacter, message)
	d.path = d.path[:known]
}
