package results

import (
	"encoding/json"
	"fmt"
	"io"
	"math"
	"strconv"
	"text/tabwriter"
)

// Report is the result of a run.
type Report struct {
	Durability string
	Rounds     int
	Quick      bool
	Rows       []Row
}

// Missed returns the rows that missed their budget.
func (r *Report) Missed() []Row {
	var missed []Row
	for _, row := range r.Rows {
		if met, judged := row.Met(); judged && !met {
			missed = append(missed, row)
		}
	}
	return missed
}

// Print writes the table as text.
func (r *Report) Print(out io.Writer) {
	fmt.Fprintf(out, "\n%s\nmedian of %d rounds; ratio of the medians\n", r.Durability, r.Rounds)
	if r.Quick {
		fmt.Fprintln(out, "quick: everything is smaller and shorter than in a real run, these figures are not meaningful")
	}
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "section\tname\tunit\tmin\tmedian\tmax\treference\tratio\tbudget\tmet\tmoonshot")
	for _, row := range r.Rows {
		row.print(w)
	}
	_ = w.Flush() // output to a terminal, which may be closed
}

func (r Row) print(w io.Writer) {
	v := r.Values()
	reference, ratio, budget, result, moonshot := "", "", "", "", ""
	if s, ok := r.Reference(); ok {
		reference = Figure(s.Median)
	}
	if x, ok := r.Ratio(); ok {
		ratio = Figure(x)
	}
	if met, judged := r.Met(); judged {
		budget, result = r.bound()+" "+Figure(r.Budget), map[bool]string{true: "yes", false: "MISSED"}[met]
	}
	if r.Moonshot != 0 {
		moonshot = r.bound() + " " + Figure(r.Moonshot)
	}
	fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\n", r.Section, r.title(), r.Unit,
		Figure(v.Min), Figure(v.Median), Figure(v.Max), reference, ratio, budget, result, moonshot)
}

func (r Row) bound() string {
	if r.AtMost {
		return "≤"
	}
	return "≥"
}

// Figure formats three significant digits, or all digits before the decimal point.
func Figure(x float64) string {
	digits := 2 - int(math.Floor(math.Log10(math.Abs(x))))
	if x == 0 {
		digits = 0
	}
	return strconv.FormatFloat(x, 'f', min(max(digits, 0), 6), 64)
}

// MarshalJSON returns the list of the rows.
func (r Report) MarshalJSON() ([]byte, error) {
	return json.Marshal(append([]Row{}, r.Rows...)) // [] if there are none
}
