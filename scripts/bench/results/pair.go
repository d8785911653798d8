package results

import (
	"slices"
)

// RecordPair adds one value of the subject and one of its reference to their row, for a measurement
// that yields several pairs at once. The first pair creates the row. It does not call the Measure
// functions.
func (t *Table) RecordPair(s Subject, r Reference, value, reference float64) {
	i := slices.IndexFunc(t.rows, func(row *Row) bool { return row.Name == s.Name && row.Against == r.Name })
	if i < 0 {
		t.add(&Row{
			Section: t.section, Name: s.Name, Unit: s.Unit, Against: r.Name,
			Budget: r.Budget, AtMost: r.AtMost, Moonshot: r.Moonshot,
		})
		i = len(t.rows) - 1
	}
	t.rows[i].values, t.rows[i].references = append(t.rows[i].values, value), append(t.rows[i].references, reference)
}
