package bench

import (
	"encoding/json"
	"fmt"
	"io"
	"math"
	"strconv"
	"text/tabwriter"
)

// Report is what a run measured.
type Report struct {
	Durability string
	Rounds     int
	Quick      bool
	Rows       []Row
}

// Missed are the rows whose budget was not kept.
func (r *Report) Missed() []Row {
	var missed []Row
	for _, row := range r.Rows {
		if met, judged := row.Met(); judged && !met {
			missed = append(missed, row)
		}
	}
	return missed
}

// Print writes the table for people.
func (r *Report) Print(out io.Writer) {
	fmt.Fprintf(out, "\n%s\nmedian of %d rounds; ratio of the medians\n", r.Durability, r.Rounds)
	if r.Quick {
		fmt.Fprintln(out, "quick: everything is smaller and shorter than it should be, these figures mean little")
	}
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "section\tname\tunit\tmin\tmedian\tmax\treference\tratio\tbudget\tmet\tmoonshot")
	for _, row := range r.Rows {
		row.print(w)
	}
	_ = w.Flush() // to a terminal, whose reader may be gone
}

func (r Row) print(w io.Writer) {
	v := r.Values()
	reference, ratio, budget, verdict, moonshot := "", "", "", "", ""
	if s, ok := r.Reference(); ok {
		reference = figure(s.Median)
	}
	if x, ok := r.Ratio(); ok {
		ratio = figure(x)
	}
	if met, judged := r.Met(); judged {
		budget, verdict = r.bound()+" "+figure(r.Budget), map[bool]string{true: "yes", false: "MISSED"}[met]
	}
	if r.Moonshot != 0 {
		moonshot = r.bound() + " " + figure(r.Moonshot)
	}
	fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\n", r.Section, r.title(), r.Unit,
		figure(v.Min), figure(v.Median), figure(v.Max), reference, ratio, budget, verdict, moonshot)
}

func (r Row) bound() string {
	if r.AtMost {
		return "≤"
	}
	return "≥"
}

// figure shows three digits, or all before the point.
func figure(x float64) string {
	digits := 2 - int(math.Floor(math.Log10(math.Abs(x))))
	if x == 0 {
		digits = 0
	}
	return strconv.FormatFloat(x, 'f', min(max(digits, 0), 6), 64)
}

// MarshalJSON is the list of the rows.
func (r Report) MarshalJSON() ([]byte, error) {
	return json.Marshal(append([]Row{}, r.Rows...)) // [] if there are none
}
