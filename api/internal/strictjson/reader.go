package strictjson

import (
	"reflect"
	"strconv"
	"strings"

	"email-gateway/api/internal/fieldhint"
	"email-gateway/shared/email"
	"email-gateway/shared/rules"
)

// Codes of faults found by a Reader; duplicate fields and invalid characters have codes of package
// rules.
const (
	CodeUnknownField = "UNKNOWN_FIELD"
	CodeWrongType    = "WRONG_TYPE"
)

// maxEntries limits the entries of an array or map that Read decodes. The largest number that a rule allows is 1000,
// but blank and repeated entries of some fields do not count.
const maxEntries = 10_000

// Reader decodes documents into one struct type. It is safe for concurrent use.
type Reader[T any] struct {
	shape   *shape
	request fieldhint.Request
}

// NewReader prepares decoding into T: a struct whose fields, all with a json name, are strings, ints,
// bools, slices, maps with string keys, json.RawMessage, such structs, or pointers to those. Other types are an error.
func NewReader[T any]() (*Reader[T], error) {
	s, err := shapeOf(reflect.TypeFor[T]())
	if err != nil {
		return nil, err
	}
	return &Reader[T]{shape: s, request: fieldhint.Request{Noun: "field", Known: s.paths("")}}, nil
}

// Read returns the document's fields. Fields with a fault stay zero, and so do blank texts: they count
// as missing. A blank value in a map is removed with its key; in a list it becomes "", so that the
// indexes of the others do not change. Fields for which blank is invalid have the tag blank:"refused". A
// blank text for a pointer with the tag blank:"removes" is "", which differs from a missing one.
//
// Read decodes only the beginning of an array or map with more than maxEntries entries, blank ones included, because an element
// takes much more memory than its text. It reports rules.CodeTooMany with the limit of the field's rule.
func (r *Reader[T]) Read(d Document) (T, []rules.Fault) {
	var value T
	w := decoder{request: &r.request}
	w.value(r.shape, d.text, reflect.ValueOf(&value).Elem())
	return value, w.faults
}

// decoder is one pass over a document.
type decoder struct {
	request *fieldhint.Request
	hint    string   // expected value of the current field
	instead string   // what to do instead of null
	path    []string // current path
	faults  []rules.Fault
}

func (d *decoder) value(s *shape, text string, into reflect.Value) {
	if s.goType == rawType {
		known := len(d.faults)
		if d.checkRaw(text); len(d.faults) == known {
			into.SetBytes([]byte(text))
		}
		return
	}
	if found := kindOf(text); found != s.wants {
		d.fault(CodeWrongType, explainType(s.wants, found, d.hint, d.instead))
		return
	}
	switch s.kind {
	case reflect.Pointer:
		if s.element.kind == reflect.String {
			if said := d.text(text); !email.IsBlank(said) {
				into.Set(reflect.New(s.element.goType))
				into.Elem().SetString(said)
			}
			return
		}
		into.Set(reflect.New(s.element.goType))
		d.value(s.element, text, into.Elem())
	case reflect.String:
		if said := d.text(text); !email.IsBlank(said) {
			into.SetString(said)
		}
	case reflect.Bool:
		into.SetBool(text == "true")
	case reflect.Int:
		if whole, fraction, found := strings.Cut(text, "."); found && strings.Trim(fraction, "0") == "" {
			text = whole // JSON Schema takes 5.0 for an integer, too
		}
		n, err := strconv.ParseInt(text, 10, 32)
		if err != nil {
			d.fault(CodeWrongType, "must be a 32-bit integer without exponent")
		}
		into.SetInt(n)
	case reflect.Slice:
		d.list(s, text, into)
	case reflect.Map:
		d.dictionary(s, text, into)
	case reflect.Struct:
		d.object(s, text, into)
	}
}

func (d *decoder) list(s *shape, text string, into reflect.Value) {
	list := reflect.MakeSlice(s.goType, 0, 4)
	d.hint = ""
	for n, value := range elements(text) {
		if len(d.faults) >= rules.MaxFaults {
			break
		}
		element := reflect.New(s.element.goType).Elem()
		d.instead = "leave it out of the array"
		d.within("["+strconv.Itoa(n)+"]", func() { d.value(s.element, value, element) })
		list = reflect.Append(list, element)
		if n == maxEntries {
			d.tooMany(s)
			break
		}
	}
	into.Set(list)
}

func (d *decoder) dictionary(s *shape, text string, into reflect.Value) {
	entries := reflect.MakeMap(s.goType)
	d.hint = ""
	n := 0
	for literal, value := range members(text) {
		if len(d.faults) >= rules.MaxFaults {
			break
		}
		if n++; n > maxEntries {
			d.tooMany(s)
			break
		}
		key := reflect.ValueOf(d.text(literal))
		d.instead = "leave the field out"
		d.within("."+key.String(), func() {
			if entries.MapIndex(key).IsValid() {
				d.fault(rules.CodeDuplicateField, "appears twice")
			}
			element := reflect.New(s.element.goType).Elem()
			d.value(s.element, value, element)
			if s.element.kind == reflect.String && element.String() == "" {
				entries.SetMapIndex(key, reflect.Value{})
				return
			}
			entries.SetMapIndex(key, element)
		})
	}
	into.Set(entries)
}

func (d *decoder) tooMany(s *shape) {
	d.fault(rules.CodeTooMany, "must have at most "+strconv.Itoa(s.most)+" entries")
}

func (d *decoder) object(s *shape, text string, into reflect.Value) {
	var seen uint64 // a bit per field
	for literal, value := range members(text) {
		if len(d.faults) >= rules.MaxFaults {
			break
		}
		name := d.text(literal)
		d.within("."+name, func() {
			f, known := s.fields[name]
			switch {
			case !known:
				d.fault(CodeUnknownField, d.request.Unknown(d.parent(), name))
			case seen&(1<<f.index) != 0:
				d.fault(rules.CodeDuplicateField, "appears twice")
			default:
				seen |= 1 << f.index
				known := len(d.faults)
				d.hint, d.instead = f.hint, "leave the field out"
				switch {
				case f.required:
					d.instead = "it needs a value"
				case f.blank == "removes":
					d.instead = `"" removes it`
				}
				field := into.Field(f.index)
				d.value(f.shape, value, field)
				if len(d.faults) > known || !field.IsZero() {
					return
				}
				switch f.blank {
				case "refused":
					d.fault(rules.CodeRequired, rules.LeaveOut)
				case "removes":
					field.Set(reflect.New(f.shape.element.goType))
				}
			}
		})
	}
}

// text decodes a string.
func (d *decoder) text(literal string) string {
	decoded, err := storable(literal)
	if err != nil {
		d.fault(rules.CodeBadCharacter, err.Error())
	}
	return decoded
}

func (d *decoder) within(piece string, step func()) {
	d.path = append(d.path, piece)
	step()
	d.path = d.path[:len(d.path)-1]
}

// parent returns the path of the current object in the format of fieldhint.Request.
func (d *decoder) parent() string {
	var path strings.Builder
	for _, piece := range d.path[:len(d.path)-1] {
		if strings.HasPrefix(piece, "[") {
			piece = "[]"
		}
		path.WriteString(piece)
	}
	return strings.TrimPrefix(path.String(), ".")
}

// explainType says what a value must be and, unless the field has its own hint, how to write it.
// instead is the hint for null.
func explainType(wants, found, hint, instead string) string {
	switch {
	case found == "null":
		hint = instead
	case hint != "":
	case wants == "an array":
		hint = "put it into brackets, even a single value"
	case wants == "a string" && (found == "a number" || found == "a boolean"):
		hint = "put it into quotes"
	case found == "a string" && (wants == "a number" || wants == "a boolean"):
		hint = "write it without quotes"
	}
	if hint != "" {
		hint = ": " + hint
	}
	return "must be " + wants + ", not " + found + hint
}

// maxPiece limits how much of a name chosen by the client is repeated in a path.
const maxPiece = 128

func (d *decoder) fault(code, message string) {
	if len(d.faults) >= rules.MaxFaults {
		return
	}
	var path strings.Builder
	for _, piece := range d.path {
		path.WriteString(strings.ToValidUTF8(piece[:min(len(piece), maxPiece)], ""))
	}
	d.faults = append(d.faults, rules.Fault{Field: strings.TrimPrefix(path.String(), "."), Code: code, Message: message})
}
