package results

import (
	"io"
	"testing"
)

func TestRecordPair(t *testing.T) {
	t.Parallel()
	table := &Table{section: "s", rounds: 2, out: io.Discard}
	for _, v := range []float64{10, 30} {
		table.RecordPair(Subject{Name: "we", Unit: "1/s"}, Reference{Name: "they", Budget: 0.5}, v, 100)
		table.RecordPair(Subject{Name: "we", Unit: "1/s"}, Reference{Name: "others"}, v, 10)
	}
	rows := table.Finished()
	if len(rows) != 2 {
		t.Fatalf("there are %d rows, want one for each reference", len(rows))
	}
	for i, want := range []float64{0.2, 2} {
		if ratio, ok := rows[i].Ratio(); !ok || ratio != want {
			t.Errorf("row %d: the ratio is %v, want %v", i, ratio, want)
		}
	}
	if met, judged := rows[0].Met(); met || !judged {
		t.Error("a missed budget was not reported")
	}
}
