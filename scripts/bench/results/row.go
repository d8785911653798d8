package results

import (
	"encoding/json"
	"slices"
)

// Row is one line of the result: a quantity, alone or with a reference.
type Row struct {
	Section, Name, Unit string
	Against             string // the reference's name; "" = none
	Budget              float64
	AtMost              bool // the budget is a maximum, not a minimum
	Moonshot            float64

	values, references []float64 // one per round
}

// Spread is the minimum, median and maximum of some values.
type Spread struct{ Min, Median, Max float64 }

// spreadOf needs at least one value. The median of an even number of values is the mean of the two
// middle ones.
func spreadOf(values []float64) Spread {
	sorted := slices.Sorted(slices.Values(values))
	n := len(sorted)
	return Spread{Min: sorted[0], Median: (sorted[(n-1)/2] + sorted[n/2]) / 2, Max: sorted[n-1]}
}

// Values returns the spread of the quantity over the rounds.
func (r Row) Values() Spread { return spreadOf(r.values) }

// Reference returns the spread of the reference; false if the row has none.
func (r Row) Reference() (s Spread, ok bool) {
	if r.Against == "" {
		return Spread{}, false
	}
	return spreadOf(r.references), true
}

// Ratio returns the quantity's median divided by the reference's; false if the row has no
// reference, or its median is 0.
func (r Row) Ratio() (ratio float64, ok bool) {
	reference, ok := r.Reference()
	if !ok || reference.Median == 0 {
		return 0, false
	}
	return r.Values().Median / reference.Median, true
}

// Met reports whether the budget is met; judged is false if there is no budget.
func (r Row) Met() (met, judged bool) {
	if r.Budget == 0 {
		return false, false
	}
	value := r.Values().Median
	if r.Against != "" {
		ratio, ok := r.Ratio()
		if !ok {
			return false, true
		}
		value = ratio
	}
	if r.AtMost {
		return value <= r.Budget, true
	}
	return value >= r.Budget, true
}

// MarshalJSON returns the row for other programs; missing values are null. reference is the median
// of the reference.
func (r Row) MarshalJSON() ([]byte, error) {
	line := struct {
		Section   string   `json:"section"`
		Name      string   `json:"name"`
		Unit      string   `json:"unit"`
		Median    float64  `json:"median"`
		Reference *float64 `json:"reference"`
		Ratio     *float64 `json:"ratio"`
		Budget    *float64 `json:"budget"`
		Met       *bool    `json:"met"`
	}{Section: r.Section, Name: r.title(), Unit: r.Unit, Median: r.Values().Median}
	if s, ok := r.Reference(); ok {
		line.Reference = &s.Median
	}
	if ratio, ok := r.Ratio(); ok {
		line.Ratio = &ratio
	}
	if met, judged := r.Met(); judged {
		line.Budget, line.Met = &r.Budget, &met
	}
	return json.Marshal(line)
}

// title distinguishes rows of one subject with several references.
func (r Row) title() string {
	if r.Against == "" {
		return r.Name
	}
	return r.Name + " / " + r.Against
}
