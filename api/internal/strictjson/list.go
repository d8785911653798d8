package strictjson

import (
	"strconv"

	"email-gateway/shared/rules"
)

// List is an array of objects.
type List struct {
	Objects []Document // the zero Document for an element that is not an object
	Wrong   map[int]rules.Fault
	Length  int // of the array, of which Objects may have less
}

// List returns the array that is the only field of the document, and of its elements at most most. Wrong has the faults of
// elements that are not objects; faults are those of the document.
func (d Document) List(field string, limit int) (all List, faults []rules.Fault) {
	w := decoder{}
	list := ""
	for literal, value := range members(d.text) {
		if len(w.faults) >= rules.MaxFaults {
			break
		}
		name := w.text(literal)
		w.within("."+name, func() {
			switch found := kindOf(value); {
			case name != field:
				w.fault(CodeUnknownField, "is not a field of this request: the only field is "+field)
			case list != "":
				w.fault(rules.CodeDuplicateField, "appears twice")
			case found != "an array":
				w.fault(CodeWrongType, explainType("an array", found, "", "it needs a value"))
			default:
				list = value
			}
		})
	}
	if list == "" {
		if len(w.faults) == 0 {
			w.within("."+field, func() { w.fault(rules.CodeRequired, "is required") })
		}
		return List{}, w.faults
	}
	all.Wrong = map[int]rules.Fault{}
	for i, value := range elements(list) {
		if all.Length++; all.Length > limit {
			continue
		}
		object := Document{text: value}
		if found := kindOf(value); found != "an object" {
			object = Document{}
			all.Wrong[i] = rules.Fault{
				Field: field + "[" + strconv.Itoa(i) + "]", Code: CodeWrongType,
				Message: explainType("an object", found, "", "leave it out of the array"),
			}
		}
		all.Objects = append(all.Objects, object)
	}
	return all, w.faults
}
