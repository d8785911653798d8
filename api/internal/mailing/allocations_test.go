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
	"email-gateway/shared/store"
	"email-gateway/shared/store/storetest"
)

// perRow is what a row may allocate on its whole way, from the bytes of the stored file
// through decryption, CSV, judge and store to the COPY: its texts, its token and its id.
// A CPF or CNPJ costs ten more, a domain beyond ASCII four.
const perRow = 3

// The rest of the way costs a few objects for each piece of the file and of the COPY:
// 0.006 a row, of which this is the bound. With a million rows it is 0.07, since the
// filter then takes more of them for duplicates.
const perPiece = 0.1

// underRace: the race detector keeps one more object of a token on the heap.
func underRace() bool {
	info, ok := debug.ReadBuildInfo()
	return ok && slices.Contains(info.Settings, debug.BuildSetting{Key: "-race", Value: "true"})
}

// A row costs the time to read it and three allocations, whatever its width: a file of a
// million rows must not make the garbage collector the api's main work. The rows are as
// most are, with an address, a name and two fields of a template. Not parallel: it counts
// the allocations of all.
func TestLines_Allocations(t *testing.T) {
	const warm, rows = 1000, 10_000
	var file strings.Builder
	file.WriteString("nome;email;cidade;cupom;obs\n")
	for n := range warm + rows + 1 {
		fmt.Fprintf(&file, "João Conceição da Silva %d;joao.silva.%d@exemplo.com.br;São Paulo;PROMO%d;\n", n, n, n)
	}
	l := letter{
		subject: "Oi {{nome}}", html: `<p>{{nome}} de {{cidade}}: {{cupom}}</p><a href="{{unsubscribe_url}}">sair</a>`,
		text: "{{cidade}}: {{cupom}} {{token}}",
	}
	most := perRow + perPiece
	if underRace() {
		most++
	}

	// counted are the allocations of a row, measured where it is asked for.
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
	reading, judge := opened(t, l, file.String())
	judging := counted(func(row func()) {
		for _, err := range mailing.Lines(reading, judge) {
			if err != nil {
				t.Fatal(err)
			}
			row()
		}
	})
	d := storetest.New(t)
	reading, judge = opened(t, l, file.String())
	m := storetest.NewMailing(d.Company(t), func(m *store.NewMailing) { m.Fields = judge.Fields() })
	whole := counted(func(row func()) {
		lines := func(yield func(store.MailingLine, error) bool) {
			for line, err := range mailing.Lines(reading, judge) {
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

func opened(t *testing.T, l letter, file string) (*mailing.Reading, *mailing.Judge) {
	t.Helper()
	reading, judge, _, _ := judgedWith(t, mailing.NewTokens(nil), l, file) // the pool is empty: all its tokens are made on the way
	return reading, judge
}
