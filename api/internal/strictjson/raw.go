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

// checkRaw reports the strings and names of a raw value that text would reject.
func (d *decoder) checkRaw(value string) {
	eachString(value, func(_ int, in []container, isName bool, err error) bool {
		switch {
		case isName && err != nil:
			d.faultIn(in, "has a name that "+err.Error())
		case err != nil:
			d.faultIn(in, err.Error())
		}
		return len(d.faults) < rules.MaxFaults
	})
}

// fieldAt returns the path of the string at an offset of a JSON value, or of the object whose field has it as its name. "" is
// the value itself, or none.
func fieldAt(value string, offset int) string {
	var d decoder
	eachString(value, func(end int, in []container, _ bool, _ error) bool {
		if end > offset {
			d.faultIn(in, "")
		}
		return end <= offset
	})
	if len(d.faults) == 0 {
		return ""
	}
	return d.faults[0].Field
}

// eachString calls visit for the strings of a JSON value until it returns false: with the offset behind the string, the
// containers that it is in, or for the name of a field those that the object is in, and the reason why text would reject it. It
// reads the value once and does not recurse, because the client chooses its size and depth.
func eachString(value string, visit func(end int, in []container, isName bool, err error) bool) {
	var open []container
	name := false // the next string is the name of a field
	for i := 0; i < len(value); {
		last := len(open) - 1
		switch value[i] {
		case '"':
			literal := value[i:skipString(value, i)]
			i += len(literal)
			text, err := storable(literal)
			in := open
			if name {
				in = open[:last]
			}
			if !visit(i, in, name, err) {
				return
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
