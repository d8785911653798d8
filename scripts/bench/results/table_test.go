package results

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// counted returns a measurement that yields 10, 20, 30 … times scale, and records its calls.
func counted(turns *[]string, name string, scale float64) Measure {
	n := 0.0
	return func(context.Context) (float64, error) {
		*turns = append(*turns, name)
		n += 10 * scale
		return n, nil
	}
}

func TestCompare_Alternates(t *testing.T) {
	t.Parallel()
	var turns []string
	table := &Table{section: "s", rounds: 3, out: io.Discard}
	err := table.Compare(t.Context(), Subject{Name: "we", Unit: "1/s", Measure: counted(&turns, "A", 4)},
		Reference{Name: "one", Budget: 2, Measure: counted(&turns, "B", 1)},
		Reference{Name: "other", Measure: counted(&turns, "C", 2)})
	if err != nil {
		t.Fatal(err)
	}
	if got := strings.Join(turns, ""); got != "ABCABCABC" {
		t.Errorf("the turns were %s", got)
	}
	rows := table.Finished()
	if len(rows) != 2 {
		t.Fatalf("there are %d rows, want one for each reference", len(rows))
	}
	for i, want := range []float64{4, 2} {
		if ratio, ok := rows[i].Ratio(); !ok || ratio != want {
			t.Errorf("row %d: the ratio is %v, want %v", i, ratio, want)
		}
	}
	if want := (Spread{40, 80, 120}); rows[0].Values() != want {
		t.Errorf("the values are %+v, want %+v", rows[0].Values(), want)
	}
}

func TestCompare_Error(t *testing.T) {
	t.Parallel()
	cause := errors.New("out of order")
	var turns []string
	table := &Table{section: "s", rounds: 3, out: io.Discard}
	err := table.Compare(t.Context(), Subject{Name: "we", Measure: counted(&turns, "A", 1)},
		Reference{Name: "broken", Measure: func(context.Context) (float64, error) { return 0, cause }})
	if !errors.Is(err, cause) || !strings.Contains(err.Error(), "broken") {
		t.Errorf("the error is %v", err)
	}
	if rows := table.Finished(); len(rows) != 0 || len(turns) != 1 {
		t.Errorf("%d rows after %d turns", len(rows), len(turns))
	}
}

func TestRecord(t *testing.T) {
	t.Parallel()
	table := &Table{section: "s", rounds: 2, out: io.Discard}
	for _, v := range []float64{3, 1, 2} {
		table.Record(Quantity{Name: "p99", Unit: "ms", Budget: 2, Moonshot: 1}, v)
		table.Record(Quantity{Name: "p50", Unit: "ms"}, v/10)
	}
	if err := table.Limit(t.Context(), Quantity{Name: "least", Unit: "1/s", Budget: 5, AtLeast: true}, func(context.Context) (float64, error) { return 4, nil }); err != nil {
		t.Fatal(err)
	}
	report := Report{Rows: table.Finished()}
	var missed []string
	for _, row := range report.Missed() {
		missed = append(missed, row.Name)
	}
	if want := []string{"least"}; !cmp.Equal(missed, want) {
		t.Errorf("missed %v, want %v", missed, want)
	}
	if got := report.Rows[0].Values(); got != (Spread{1, 2, 3}) {
		t.Errorf("p99 is %+v", got)
	}
}

func TestReport(t *testing.T) {
	t.Parallel()
	report := Report{Durability: "durability  all on", Rounds: 5, Quick: true, Rows: []Row{
		{Section: "accept", Name: "64", Unit: "emails/s", Against: "naive", Budget: 2.2, Moonshot: 3, values: []float64{9, 10, 11}, references: []float64{5, 5, 5}},
		{Section: "latency", Name: "p99", Unit: "ms", Budget: 80, AtMost: true, values: []float64{8}},
	}}
	var out bytes.Buffer
	report.Print(&out)
	for _, want := range []string{"durability  all on", "5 rounds", "quick", "64 / naive", "9.00", "10.0", "11.0", "≥ 2.20", "MISSED", "≥ 3.00", "≤ 80.0", "yes"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("the table does not show %q:\n%s", want, out.String())
		}
	}
	for name, rows := range map[string][]Row{"two rows": report.Rows, "none": nil} {
		text, err := json.Marshal(Report{Rows: rows})
		if err != nil {
			t.Fatal(err)
		}
		var list []map[string]any
		if err := json.Unmarshal(text, &list); err != nil || list == nil || len(list) != len(rows) {
			t.Errorf("%s: %s (%v)", name, text, err)
		}
	}
}
