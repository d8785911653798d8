package store

// parameters describes what a grouped statement takes, one line per parameter: its name, its
// Postgres type and its value in Go. A grouped statement works on many rows at once: each
// column of the rows is one array (see array.go), and a scalar holds for the whole statement.
//
// The arguments of a call and the numbers in the statement's file come from this description,
// so no number is written by hand. sql/README.md says how to change a statement.
type parameters[S, T any] struct {
	scalars []scalar[S] // $1 and on
	columns []column[T] // the numbers after those of the scalars
}

// scalar is a parameter with one value.
type scalar[S any] struct {
	name, kind string
	value      func(S) any
}

// column is a parameter with one value per row.
type column[T any] struct {
	name, kind string // kind is the type of an element
	array      func(rows []T) []byte
}

// each describes a column. array is the function of array.go that lays it out, and fits kind.
func each[T, V any](name, kind string, array func([]T, func(*T) V) []byte, value func(*T) V) column[T] {
	return column[T]{name: name, kind: kind, array: func(rows []T) []byte { return array(rows, value) }}
}

// arguments are the values of a call in the order of their numbers. The slice is the caller's.
func (p parameters[S, T]) arguments(scalars S, rows []T) []any {
	args := make([]any, 0, len(p.scalars)+len(p.columns))
	for _, s := range p.scalars {
		args = append(args, s.value(scalars))
	}
	for _, c := range p.columns {
		args = append(args, c.array(rows))
	}
	return args
}
