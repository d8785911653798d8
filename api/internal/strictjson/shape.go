package strictjson

import (
	"fmt"
	"reflect"
	"strings"
)

// shape is what is known about a Go type before a document is there.
type shape struct {
	goType  reflect.Type
	kind    reflect.Kind
	wants   string // the kind of JSON value, as kindOf names it
	element *shape // of a slice, map or pointer
	fields  map[string]structField
}

type structField struct {
	index int
	shape *shape
}

func shapeOf(t reflect.Type) (*shape, error) {
	s := &shape{goType: t, kind: t.Kind()}
	var err error
	switch t.Kind() {
	case reflect.String:
		s.wants = "a string"
	case reflect.Int:
		s.wants = "a number"
	case reflect.Bool:
		s.wants = "a boolean"
	case reflect.Slice:
		s.wants = "an array"
		s.element, err = shapeOf(t.Elem())
	case reflect.Map:
		s.wants = "an object"
		s.element, err = shapeOf(t.Elem())
	case reflect.Struct:
		s.wants = "an object"
		s.fields, err = fieldsOf(t)
	case reflect.Pointer:
		if s.element, err = shapeOf(t.Elem()); err == nil {
			s.wants = s.element.wants
		}
	default:
		err = fmt.Errorf("no field of a request can be a %s", t)
	}
	return s, err
}

func fieldsOf(t reflect.Type) (map[string]structField, error) {
	if t.NumField() > 64 {
		return nil, fmt.Errorf("%s has more fields than a word has bits", t)
	}
	fields := make(map[string]structField, t.NumField())
	for i := range t.NumField() {
		f := t.Field(i)
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		if name == "" {
			return nil, fmt.Errorf("field %s of %s has no json name", f.Name, t)
		}
		s, err := shapeOf(f.Type)
		if err != nil {
			return nil, fmt.Errorf("field %s of %s: %w", f.Name, t, err)
		}
		fields[name] = structField{index: i, shape: s}
	}
	return fields, nil
}

func (s *shape) explainUnknown(name string) string {
	for known := range s.fields {
		if strings.EqualFold(known, name) {
			return "is not a field; " + known + " is"
		}
	}
	return "is not a field of this request"
}
