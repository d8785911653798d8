package pg

import (
	"encoding/binary"

	"github.com/lib/pq/oid"
)

// Parameters describes what a grouped statement takes, one line per parameter: its name, its
// Postgres type and its value in Go. A grouped statement works on many rows at once: each
// column of the rows is one array (see array.go), and a scalar holds for the whole statement.
//
// The arguments of a call and the numbers in the statement's file come from this description,
// so no number is written by hand. sql/README.md says how to change a statement.
type Parameters[S, T any] struct {
	Scalars []Scalar[S] // $1 and on
	Columns []Column[T] // the numbers after those of the scalars
}

// Scalar is a parameter with one value.
type Scalar[S any] struct {
	Name, Type string
	value      func(S) any
}

// Column is a parameter with one value per row.
type Column[T any] struct {
	Name, Type string // Type is that of an element
	Array      func(rows []T) []byte
}

// One describes a scalar.
func One[S any](name, kind string, value func(S) any) Scalar[S] {
	return Scalar[S]{Name: name, Type: kind, value: value}
}

// Each describes a column. array is the function of array.go that lays it out, and fits kind.
func Each[T, V any](name, kind string, array func([]T, func(*T) V) []byte, value func(*T) V) Column[T] {
	return Column[T]{Name: name, Type: kind, Array: func(rows []T) []byte { return array(rows, value) }}
}

// Arguments are the values of a call in the order of their numbers. The slice is the caller's.
func (p Parameters[S, T]) Arguments(scalars S, rows []T) []any {
	args := make([]any, 0, len(p.Scalars)+len(p.Columns))
	for _, s := range p.Scalars {
		args = append(args, s.value(scalars))
	}
	for _, c := range p.Columns {
		args = append(args, c.Array(rows))
	}
	return args
}

// Parameter is a parameter of a statement: its name, and its Postgres type.
type Parameter struct {
	Name, Type string
	// Element is the type of the values that a column's function lays out; 0 = a scalar.
	Element oid.Oid
}

// List is the description as the statement's file shows it.
func (p Parameters[S, T]) List() []Parameter {
	var all []Parameter
	for _, s := range p.Scalars {
		all = append(all, Parameter{Name: s.Name, Type: s.Type})
	}
	for _, c := range p.Columns {
		// The third word of an array is the type of its elements.
		all = append(all, Parameter{c.Name, c.Type + "[]", oid.Oid(binary.BigEndian.Uint32(c.Array(nil)[8:]))})
	}
	return all
}
