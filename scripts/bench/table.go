package bench

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
	out     io.Writer // is told each value as it comes
	rows    []*Row
}

// Measure makes one measurement and returns its value in the row's unit.
type Measure func(ctx context.Context) (float64, error)

// Subject is what a comparison is about.
type Subject struct {
	Name, Unit string
	Measure    Measure
}

// Reference is what a subject is compared with.
type Reference struct {
	Name string
	// Budget bounds the ratio of the subject's median to the reference's: at least that
	// much, or with AtMost no more. 0: the row informs only.
	Budget float64
	AtMost bool
	// Moonshot is the ratio that one would like to see. Nothing fails for it.
	Moonshot float64

	Measure Measure
}

// Compare measures the subject and its references in turns, in as many rounds as were
// asked for, and adds one row for each reference. The ratio is that of the medians.
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
	// Budget bounds the median: no more than that, or with AtLeast no less. 0: the row
	// informs only.
	Budget  float64
	AtLeast bool
	// Moonshot is the value that one would like to see. Nothing fails for it.
	Moonshot float64
}

// Limit measures a quantity in as many rounds as were asked for.
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

// Record adds one value to the quantity's row, for a measurement that yields several
// quantities at once. The row is made with its first value.
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

// Rounds is how often each measurement is to be made, for a section that goes its own
// way through them with Record.
func (t *Table) Rounds() int { return t.rounds }

// Say tells whoever is watching.
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
	t.Say("%s  %s %s", name, figure(value), unit)
	return value, nil
}

func (t *Table) add(r *Row) *Row {
	t.rows = append(t.rows, r)
	return r
}

// finished are the rows that hold values.
func (t *Table) finished() []Row {
	var rows []Row
	for _, r := range t.rows {
		if len(r.values) > 0 {
			rows = append(rows, *r)
		}
	}
	return rows
}
