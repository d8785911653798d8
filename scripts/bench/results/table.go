// Package results collects and prints the figures of a benchmark run: each measurement, that of its reference,
// and its budget.
package results

import (
	"context"
	"fmt"
	"io"
	"slices"
)

// Table collects the rows of one section.
type Table struct {
	section string
	rounds  int
	out     io.Writer // receives each value
	rows    []*Row
}

// NewTable returns the table of a section. out receives progress messages.
func NewTable(section string, rounds int, out io.Writer) *Table {
	return &Table{section: section, rounds: rounds, out: out}
}

// Measure makes one measurement and returns its value in the row's unit.
type Measure func(ctx context.Context) (float64, error)

// Subject is the measured side of a comparison.
type Subject struct {
	Name, Unit string
	Measure    Measure
}

// Reference is the other side of a comparison.
type Reference struct {
	Name string
	// Budget limits the ratio of the subject's median to the reference's: a minimum, or with AtMost
	// a maximum. 0: no budget.
	Budget float64
	AtMost bool
	// Moonshot is the desired ratio. Missing it is no failure.
	Moonshot float64

	Measure Measure
}

// Compare alternately measures the subject and its references in the configured number of rounds,
// and adds one row per reference. The ratio is that of the medians.
func (t *Table) Compare(ctx context.Context, s Subject, references ...Reference) error {
	rows := make([]*Row, len(references))
	for i, r := range references {
		rows[i] = t.add(&Row{
			Section: t.section, Name: s.Name, Unit: s.Unit, Against: r.Name,
			Budget: r.Budget, AtMost: r.AtMost, Moonshot: r.Moonshot,
		})
	}
	for range t.rounds {
		value, err := t.measure(ctx, s.Name, s.Unit, s.Measure)
		if err != nil {
			return err
		}
		for i, r := range references {
			other, err := t.measure(ctx, "  "+r.Name, s.Unit, r.Measure)
			if err != nil {
				return err
			}
			rows[i].values, rows[i].references = append(rows[i].values, value), append(rows[i].references, other)
		}
	}
	return nil
}

// Quantity is a row without a reference.
type Quantity struct {
	Name, Unit string
	// Budget limits the median: a maximum, or with AtLeast a minimum. 0: no budget.
	Budget  float64
	AtLeast bool
	// Moonshot is the desired value. Missing it is no failure.
	Moonshot float64
}

// Limit measures a quantity in the configured number of rounds.
func (t *Table) Limit(ctx context.Context, q Quantity, measure Measure) error {
	for range t.rounds {
		value, err := t.measure(ctx, q.Name, q.Unit, measure)
		if err != nil {
			return err
		}
		t.Record(q, value)
	}
	return nil
}

// Record adds one value to the quantity's row, for a measurement that yields several quantities at
// once. The first value creates the row.
func (t *Table) Record(q Quantity, value float64) {
	i := slices.IndexFunc(t.rows, func(r *Row) bool { return r.Name == q.Name && r.Against == "" })
	if i < 0 {
		t.add(&Row{
			Section: t.section, Name: q.Name, Unit: q.Unit,
			Budget: q.Budget, AtMost: !q.AtLeast, Moonshot: q.Moonshot,
		})
		i = len(t.rows) - 1
	}
	t.rows[i].values = append(t.rows[i].values, value)
}

// Rounds returns the configured number of rounds, for a section that uses Record.
func (t *Table) Rounds() int { return t.rounds }

// Say writes a progress message.
func (t *Table) Say(format string, args ...any) {
	fmt.Fprintf(t.out, "  "+t.section+": "+format+"\n", args...)
}

func (t *Table) measure(ctx context.Context, name, unit string, measure Measure) (float64, error) {
	value, err := measure(ctx)
	if err == nil {
		err = ctx.Err()
	}
	if err != nil {
		return 0, fmt.Errorf("%s: %w", name, err)
	}
	t.Say("%s  %s %s", name, Figure(value), unit)
	return value, nil
}

func (t *Table) add(r *Row) *Row {
	t.rows = append(t.rows, r)
	return r
}

// Finished returns the rows that have values.
func (t *Table) Finished() []Row {
	var rows []Row
	for _, r := range t.rows {
		if len(r.values) > 0 {
			rows = append(rows, *r)
		}
	}
	return rows
}
