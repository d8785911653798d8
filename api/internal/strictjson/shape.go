package strictjson

import (
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"
)

// shape describes a Go type for decoding.
type shape struct {
	goType  reflect.Type
	kind    reflect.Kind
	wants   string // expected kind of JSON value, as returned by kindOf
	element *shape // of a slice, map or pointer
	most    int    // maximum number of entries of a slice or map, from the field's rule
	fields  map[string]structField
	names   []string // field names, in order
}

type structField struct {
	index    int
	shape    *shape
	blank    string // tag blank: see Read
	required bool
	hint     string // tag hint: shown for a value of the wrong type
}

// rawType is the type of fields that hold any JSON value as it is written.
var rawType = reflect.TypeFor[json.RawMessage]()

func shapeOf(t reflect.Type) (*shape, error) {
	s := &shape{goType: t, kind: t.Kind()}
	if t == rawType {
		return s, nil
	}
	var err error
	switch t.Kind() {
	case reflect.String:
		s.wants = "a string"
	case reflect.Int:
		s.wants = "a number"
	case reflect.Bool:
		s.wants = "a boolean"
	case reflect.Slice:
		s.wants, s.most = "an array", maxEntries
		s.element, err = shapeOf(t.Elem())
	case reflect.Map:
		s.wants, s.most = "an object", maxEntries
		s.element, err = shapeOf(t.Elem())
	case reflect.Struct:
		s.wants = "an object"
		s.fields, s.names, err = fieldsOf(t)
	case reflect.Pointer:
		if s.element, err = shapeOf(t.Elem()); err == nil {
			s.wants = s.element.wants
		}
	default:
		err = fmt.Errorf("type %s is not supported in a request", t)
	}
	return s, err
}

func fieldsOf(t reflect.Type) (map[string]structField, []string, error) {
	if t.NumField() > 64 {
		return nil, nil, fmt.Errorf("%s has more than 64 fields", t)
	}
	fields := make(map[string]structField, t.NumField())
	names := make([]string, 0, t.NumField())
	for i := range t.NumField() {
		f := t.Field(i)
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		if name == "" {
			return nil, nil, fmt.Errorf("field %s of %s has no json name", f.Name, t)
		}
		s, err := shapeOf(f.Type)
		if err != nil {
			return nil, nil, fmt.Errorf("field %s of %s: %w", f.Name, t, err)
		}
		if err := s.limit(f.Tag); err != nil {
			return nil, nil, fmt.Errorf("field %s of %s: %w", f.Name, t, err)
		}
		fields[name] = structField{
			index: i, shape: s, blank: f.Tag.Get("blank"),
			required: slices.Contains(strings.Split(f.Tag.Get("validate"), ","), "required"), hint: f.Tag.Get("hint"),
		}
		names = append(names, name)
	}
	return fields, names, nil
}

// limit sets most of a slice or map, or of one behind a pointer, to the number in the field's tag "most" or in its rule "max" or
// "entries". A number above maxEntries is an error, because Read would reject valid arrays.
func (s *shape) limit(tag reflect.StructTag) error {
	if s.kind == reflect.Pointer {
		return s.element.limit(tag)
	}
	if s.most == 0 {
		return nil
	}
	number := tag.Get("most")
	for rule := range strings.SplitSeq(tag.Get("validate"), ",") {
		if rule == "dive" { // the rest is about the elements
			break
		}
		if name, parameter, _ := strings.Cut(rule, "="); name == "max" || name == "entries" {
			number = parameter
		}
	}
	if number == "" {
		return nil
	}
	n, err := strconv.Atoi(number)
	if err != nil || n < 0 || n > maxEntries {
		return fmt.Errorf("the maximum of %s entries is not a number up to %d", number, maxEntries)
	}
	s.most = n
	return nil
}

// paths lists all fields below in the format of faults, with [] for any index.
func (s *shape) paths(prefix string) []string {
	switch s.kind {
	case reflect.Pointer:
		return s.element.paths(prefix)
	case reflect.Slice:
		if s.goType == rawType {
			return nil
		}
		return s.element.paths(strings.TrimSuffix(prefix, ".") + "[].")
	}
	var all []string
	for _, name := range s.names {
		all = append(all, prefix+name)
		all = append(all, s.fields[name].shape.paths(prefix+name+".")...)
	}
	return all
}
