package mailing_test

import (
	"errors"
	"fmt"
	"io"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"testing"

	"email-gateway/api/internal/mailing"
	mailingstore "email-gateway/shared/store/mailing"
	"email-gateway/shared/store/storetest"
)

// perRow is the number of allocations of a row from the stored file through decryption, CSV
// parsing, validation and store to the COPY: its texts, its token and its id. A CPF or CNPJ
// costs ten more, an internationalized domain four.
const perRow = 3

// Each chunk of the file and of the COPY costs a few more: 0.006 per row, which this bounds.
// With a million rows it is 0.07, since the filter then has more false positives for
// duplicates.
const perPiece = 0.1

// underRace: the race detector keeps one more object of a token on the heap.
func underRace() bool {
	info, ok := debug.ReadBuildInfo()
	return ok && slices.Contains(info.Settings, debug.BuildSetting{Key: "-race", Value: "true"})
}

// A row costs three allocations, whatever its width, so that a file of a million rows does not
// keep the garbage collector busy. The rows are typical: an address, a name and two template
// fields. Not parallel: it counts the allocations of the whole process.
func TestLines_Allocations(t *testing.T) {
	const warm, rows = 1000, 10_000
	var file strings.Builder
	file.WriteString("nome;email;cidade;cupom;obs\n")
	for n := range warm + rows + 1 {
		fmt.Fprintf(&file, "João Conceição da Silva %d;joao.silva.%d@exemplo.com.br;São Paulo;PROMO%d;\n", n, n, n)
	}
	l := templateSet{
		subject: "Oi {{nome}}", html: `<p>{{nome}} de {{cidade}}: {{cupom}}</p><a href="{{unsubscribe_url}}">sair</a>`,
		text: "{{cidade}}: {{cupom}} {{token}}",
	}
	most := perRow + perPiece
	if underRace() {
		most++
	}

	// counted is the number of allocations per row, set by the measurement.
	counted := func(pass func(row func())) float64 {
		var before, after runtime.MemStats
		n := 0
		pass(func() {
			switch n++; n {
			case warm:
				runtime.ReadMemStats(&before)
			case warm + rows:
				runtime.ReadMemStats(&after)
			}
		})
		if n <= warm+rows {
			t.Fatalf("only %d rows", n)
		}
		return float64(after.Mallocs-before.Mallocs) / rows
	}

	reading, _ := opened(t, l, file.String())
	csv := counted(func(row func()) {
		for ; ; row() {
			if _, err := reading.Next(); errors.Is(err, io.EOF) {
				return
			} else if err != nil {
				t.Fatal(err)
			}
		}
	})
	reading, validator := opened(t, l, file.String())
	judging := counted(func(row func()) {
		for _, err := range mailing.Lines(reading, validator) {
			if err != nil {
				t.Fatal(err)
			}
			row()
		}
	})
	d := storetest.New(t)
	reading, validator = opened(t, l, file.String())
	m := storetest.NewMailing(d.Company(t), func(m *mailingstore.NewMailing) { m.Fields = validator.Fields() })
	whole := counted(func(row func()) {
		lines := func(yield func(mailingstore.Line, error) bool) {
			for line, err := range mailing.Lines(reading, validator) {
				if row(); !yield(line, err) {
					return
				}
			}
		}
		if n, _, err := d.Store.IngestMailing(t.Context(), m, lines); err != nil || n.Accepted != warm+rows+1 {
			t.Fatalf("%+v, %v", n, err)
		}
	})
	t.Logf("allocations per row: %.3f up to the row, %.3f up to the entry, %.3f up to the COPY", csv, judging, whole)
	if csv > perPiece || whole > most {
		t.Errorf("%.3f allocations per row up to the row, %.3f up to the COPY, want at most %.1f and %.1f", csv, whole, perPiece, most)
	}
}

func opened(t *testing.T, l templateSet, file string) (*mailing.Reading, *mailing.Validator) {
	t.Helper()
	reading, validator, _, _ := openedWith(t, mailing.NewTokens(nil), l, file) // the pool is empty: all tokens are generated on demand
	return reading, validator
}

// The memory that a row needs is in proportion to its length, in however many places the templates use a column. Not parallel,
// like the test above.
func TestValidator_LongCell(t *testing.T) {
	cell := strings.Repeat("x", 60_000)
	reading, validator := opened(t, templateSet{
		subject: "s" + strings.Repeat("{{b}}", 800), text: variants("a", 8) + strings.Repeat("{{a|0}}", 9000),
	}, "email;a;b\na@real.example;a;\nb@real.example;"+cell+";\nc@real.example;;"+cell+"\n")
	var codes []string
	var before, after runtime.MemStats
	for line, err := range mailing.Lines(reading, validator) {
		switch {
		case err != nil:
			t.Fatal(err)
		case line.Entry != nil:
			runtime.ReadMemStats(&before) // the first line has made the buffers
		default:
			codes = append(codes, line.Reject.Code)
		}
	}
	runtime.ReadMemStats(&after)
	if got := after.TotalAlloc - before.TotalAlloc; !slices.Equal(codes, []string{mailing.CodeBodyTooLarge, mailing.CodeSubjectLength}) || got > 1<<20 {
		t.Errorf("%v, %d bytes allocated", codes, got)
	}
}
