package results

import (
	"encoding/json"
	"math"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

func TestSpread(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		values []float64
		want   Spread
	}{
		"one":           {[]float64{7}, Spread{7, 7, 7}},
		"odd, unsorted": {[]float64{9, 1, 5}, Spread{1, 5, 9}},
		"even":          {[]float64{4, 1, 2, 9}, Spread{1, 3, 9}},
		"an outlier":    {[]float64{10, 11, 12, 13, 9000}, Spread{10, 12, 9000}},
	} {
		if got := spreadOf(c.values); got != c.want {
			t.Errorf("%s: %+v, want %+v", name, got, c.want)
		}
	}
}

// Half of the values are at most the median, half at least, in any order.
func TestSpreadProperty(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		values := rapid.SliceOfN(rapid.Float64Range(-1e9, 1e9), 1, 20).Draw(t, "values")
		before := append([]float64(nil), values...)
		s := spreadOf(values)
		below, above := 0, 0
		for _, v := range values {
			if v <= s.Median {
				below++
			}
			if v >= s.Median {
				above++
			}
			if v < s.Min || v > s.Max {
				t.Fatalf("%v is outside of %+v", v, s)
			}
		}
		if 2*below < len(values) || 2*above < len(values) {
			t.Fatalf("%+v is not the middle of %v", s, values)
		}
		if !cmp.Equal(values, before) {
			t.Fatal("the input was modified")
		}
	})
}

func TestMet(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		row         Row
		met, judged bool
	}{
		"enough":                  {Row{Against: "naive", Budget: 2, values: []float64{21}, references: []float64{10}}, true, true},
		"exactly enough":          {Row{Against: "naive", Budget: 2, values: []float64{20}, references: []float64{10}}, true, true},
		"too little":              {Row{Against: "naive", Budget: 2, values: []float64{19}, references: []float64{10}}, false, true},
		"the median counts":       {Row{Against: "naive", Budget: 2, values: []float64{1, 20, 20}, references: []float64{10, 10, 99}}, true, true},
		"too much":                {Row{Against: "idle", Budget: 1.5, AtMost: true, values: []float64{16}, references: []float64{10}}, false, true},
		"not too much":            {Row{Against: "idle", Budget: 1.5, AtMost: true, values: []float64{15}, references: []float64{10}}, true, true},
		"a reference of nothing":  {Row{Against: "naive", Budget: 2, values: []float64{20}, references: []float64{0}}, false, true},
		"absolute, low enough":    {Row{Budget: 80, AtMost: true, values: []float64{79}}, true, true},
		"absolute, too high":      {Row{Budget: 80, AtMost: true, values: []float64{81}}, false, true},
		"absolute, high enough":   {Row{Budget: 80, values: []float64{81}}, true, true},
		"information":             {Row{values: []float64{1}}, false, false},
		"information with others": {Row{Against: "pgbench", Moonshot: 1, values: []float64{1}, references: []float64{9}}, false, false},
	} {
		if met, judged := c.row.Met(); met != c.met || judged != c.judged {
			t.Errorf("%s: met %v, judged %v", name, met, judged)
		}
	}
}

// The list's items have exactly these members; missing values are null.
func TestRowJSON(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		row  Row
		want string
	}{
		"with a budget": {
			Row{Section: "accept", Name: "64", Unit: "emails/s", Against: "naive", Budget: 2.2, values: []float64{30, 10, 20}, references: []float64{5, 4, 6}},
			`{"section":"accept","name":"64 / naive","unit":"emails/s","median":20,"reference":5,"ratio":4,"budget":2.2,"met":true}`,
		},
		"missed": {
			Row{Section: "latency", Name: "p99", Unit: "ms", Budget: 80, AtMost: true, values: []float64{90}},
			`{"section":"latency","name":"p99","unit":"ms","median":90,"reference":null,"ratio":null,"budget":80,"met":false}`,
		},
		"information": {
			Row{Section: "accept", Name: "p50", Unit: "ms", values: []float64{1, 2}},
			`{"section":"accept","name":"p50","unit":"ms","median":1.5,"reference":null,"ratio":null,"budget":null,"met":null}`,
		},
	} {
		got, err := json.Marshal(c.row)
		if err != nil || string(got) != c.want {
			t.Errorf("%s: %s, %v; want %s", name, got, err, c.want)
		}
	}
}

func TestFigure(t *testing.T) {
	t.Parallel()
	for x, want := range map[float64]string{
		0: "0", 0.123456: "0.123", 1: "1.00", 2.2: "2.20", 12.345: "12.3", 123.45: "123", 1234567: "1234567", -1.5: "-1.50", 0.0000001: "0.000000",
		math.Inf(1): "+Inf",
	} {
		if got := Figure(x); got != want {
			t.Errorf("%v is shown as %s, want %s", x, got, want)
		}
	}
}
