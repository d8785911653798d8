package pg

import (
	"encoding/binary"

	"github.com/lib/pq/oid"
)

// Parameters describes the parameters of a grouped statement, one line each: name, Postgres type and value in Go. A
// grouped statement works on many rows at once: each column of the rows is one array (see array.go), and a scalar
// applies to the whole statement. A statement whose only array is a set of ids (= ANY ($1)), or whose arrays are not columns
// of the same rows, needs no description: it is a constant beside its method.
//
// The arguments of a call and the parameter numbers in the statement's file are generated from this description.
// sql/README.md says how to change a statement.
type Parameters[S, T any] struct {
	Scalars []Scalar[S] // from $1
	Columns []Column[T] // numbered after the scalars
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

// Each describes a column. array is the function of array.go that encodes it, and must fit kind.
func Each[T, V any](name, kind string, array func([]T, func(*T) V) []byte, value func(*T) V) Column[T] {
	return Column[T]{Name: name, Type: kind, Array: func(rows []T) []byte { return array(rows, value) }}
}

// Arguments returns the values of a call in the order of their numbers. The caller owns the slice.
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
	// Element is the type of the values that a column's function encodes; 0 = a scalar.
	Element oid.Oid
}

// List returns the parameters as the statement's file shows them.
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
