package csvfile_test

import (
	"encoding/csv"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"email-gateway/api/internal/csvfile"
)

// A well-formed file is read as by the standard library, except for white space around fields, rows without
// content, and fields of the form ="…", which are not generated.
func TestReader_AgreesWithStandardLibrary(t *testing.T) {
	t.Parallel()
	field := rapid.OneOf(
		rapid.StringOfN(rapid.SampledFrom([]rune("ab é€\"\n;,\t|'")), 0, 12, -1),
		rapid.SampledFrom([]string{"", "João \"Zé\" Silva", "\"", "\"\"", "a\n\nb", "1.234,56", "\u00a0x\u00a0"}),
	)
	rapid.Check(t, func(t *rapid.T) {
		columns := rapid.IntRange(1, 5).Draw(t, "columns")
		delimiter := rapid.SampledFrom([]byte(csvfile.Delimiters)).Draw(t, "delimiter")
		records := rapid.SliceOfN(rapid.SliceOfN(field, columns, columns), 0, 20).Draw(t, "records")
		header := []string{"email"}
		for n := range columns - 1 {
			header = append(header, fmt.Sprint("column", n))
		}
		var file strings.Builder
		w := csv.NewWriter(&file)
		w.Comma, w.UseCRLF = rune(delimiter), rapid.Bool().Draw(t, "CRLF")
		if err := w.WriteAll(append([][]string{header}, records...)); err != nil {
			t.Fatal(err)
		}

		standard := csv.NewReader(strings.NewReader(file.String()))
		standard.Comma = rune(delimiter)
		all, err := standard.ReadAll()
		if err != nil {
			t.Fatal(err)
		}
		var want []string
		for _, record := range all[1:] {
			for i := range record {
				record[i] = strings.TrimSpace(record[i])
			}
			if row := strings.Join(record, "|"); strings.Trim(row, "|") != "" || strings.Contains(strings.Join(record, ""), "|") {
				want = append(want, row)
			}
		}

		options := csvfile.Options{Limits: csvfile.Limits{LineBytes: rapid.SampledFrom([]int{0, 400}).Draw(t, "limit")}}
		if columns == 1 || rapid.Bool().Draw(t, "given") {
			options.Delimiter = delimiter
		}
		in := csvfile.NewInspector()
		in.Write([]byte(file.String()))
		r, err := csvfile.Open(strings.NewReader(file.String()), in.Inspection(), options)
		if err != nil {
			t.Fatal(err)
		}
		if r.Delimiter() != delimiter && columns > 1 {
			t.Errorf("delimiter %q, want %q", r.Delimiter(), delimiter)
		}
		var got []string
		for _, line := range readAll(r) {
			_, row, _ := strings.Cut(line, ": ")
			got = append(got, row)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%q: (-standard +got)\n%s", file.String(), diff)
		}
	})
}
