package strictjson

import (
	"reflect"
	"strconv"
	"strings"

	"email-gateway/shared/rules"
)

// Codes of what a Reader finds; doubled fields and bad characters have those of package
// rules.
const (
	CodeUnknownField = "UNKNOWN_FIELD"
	CodeWrongType    = "WRONG_TYPE"
)

// Reader fills values of one struct type from documents. It may be used by many
// goroutines.
type Reader[T any] struct {
	shape *shape
}

// NewReader prepares for T: a struct whose fields, all with a json name, are
// strings, ints, bools, slices, maps with string keys, structs of that kind or
// pointers to those. Any other type is an error.
func NewReader[T any]() (*Reader[T], error) {
	s, err := shapeOf(reflect.TypeFor[T]())
	if err != nil {
		return nil, err
	}
	return &Reader[T]{shape: s}, nil
}

// Read returns the document's fields. Fields with a fault are left at zero.
func (r *Reader[T]) Read(d Document) (T, []rules.Fault) {
	var value T
	w := walk{}
	w.value(r.shape, d.text, reflect.ValueOf(&value).Elem())
	return value, w.faults
}

// walk is one pass over a document.
type walk struct {
	trail  []string // the path so far, in pieces
	faults []rules.Fault
}

func (w *walk) value(s *shape, text string, into reflect.Value) {
	if found := kindOf(text); found != s.wants {
		w.fault(CodeWrongType, "must be "+s.wants+", not "+found)
		return
	}
	switch s.kind {
	case reflect.Pointer:
		into.Set(reflect.New(s.element.goType))
		w.value(s.element, text, into.Elem())
	case reflect.String:
		into.SetString(w.text(text))
	case reflect.Bool:
		into.SetBool(text == "true")
	case reflect.Int:
		n, err := strconv.ParseInt(text, 10, 32)
		if err != nil {
			w.fault(CodeWrongType, "must be a whole number without point or exponent")
		}
		into.SetInt(n)
	case reflect.Slice:
		w.list(s, text, into)
	case reflect.Map:
		w.dictionary(s, text, into)
	case reflect.Struct:
		w.object(s, text, into)
	}
}

func (w *walk) list(s *shape, text string, into reflect.Value) {
	list := reflect.MakeSlice(s.goType, 0, 4)
	for n, value := range elements(text) {
		if len(w.faults) >= rules.MaxFaults {
			break
		}
		element := reflect.New(s.element.goType).Elem()
		w.within("["+strconv.Itoa(n)+"]", func() { w.value(s.element, value, element) })
		list = reflect.Append(list, element)
	}
	into.Set(list)
}

func (w *walk) dictionary(s *shape, text string, into reflect.Value) {
	entries := reflect.MakeMap(s.goType)
	for literal, value := range members(text) {
		if len(w.faults) >= rules.MaxFaults {
			break
		}
		key := reflect.ValueOf(w.text(literal))
		w.within("."+key.String(), func() {
			if entries.MapIndex(key).IsValid() {
				w.fault(rules.CodeDuplicateField, "stands here twice")
			}
			element := reflect.New(s.element.goType).Elem()
			w.value(s.element, value, element)
			entries.SetMapIndex(key, element)
		})
	}
	into.Set(entries)
}

func (w *walk) object(s *shape, text string, into reflect.Value) {
	var seen uint64 // a bit per field
	for literal, value := range members(text) {
		if len(w.faults) >= rules.MaxFaults {
			break
		}
		name := w.text(literal)
		w.within("."+name, func() {
			f, known := s.fields[name]
			switch {
			case !known:
				w.fault(CodeUnknownField, s.explainUnknown(name))
			case seen&(1<<f.index) != 0:
				w.fault(rules.CodeDuplicateField, "stands here twice")
			default:
				seen |= 1 << f.index
				w.value(f.shape, value, into.Field(f.index))
			}
		})
	}
}

// text decodes a string. U+0000 is refused in every field: Postgres cannot hold it.
func (w *walk) text(literal string) string {
	decoded, err := unquote(literal)
	switch {
	case err != nil:
		w.fault(rules.CodeBadCharacter, err.Error())
	case strings.IndexByte(decoded, 0) >= 0:
		w.fault(rules.CodeBadCharacter, "holds the character U+0000")
	default:
		return decoded
	}
	return ""
}

func (w *walk) within(piece string, step func()) {
	w.trail = append(w.trail, piece)
	step()
	w.trail = w.trail[:len(w.trail)-1]
}

// maxPiece bounds how much of a sender's own name comes back in a path.
const maxPiece = 128

func (w *walk) fault(code, message string) {
	if len(w.faults) >= rules.MaxFaults {
		return
	}
	var path strings.Builder
	for _, piece := range w.trail {
		path.WriteString(strings.ToValidUTF8(piece[:min(len(piece), maxPiece)], ""))
	}
	w.faults = append(w.faults, rules.Fault{Field: strings.TrimPrefix(path.String(), "."), Code: code, Message: message})
}
