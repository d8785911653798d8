package csvfile_test

import (
	"errors"
	"fmt"
	"io"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"email-gateway/api/internal/csvfile"
)

// correctCells are quoted as they have to be.
var correctCells = []string{
	"", "x", "Natal", `""`, `"a;b"`, "\"Rua A\nnº 3\"", "\"oi\n\nfale com z@b.co; obrigado\"", "\"diz \"\"olá\"\"\"", "\"x\nz@b.co; y\"", "\"z@b.co;\nw@b.co;\"",
	"\"x\nz@b.co\"", "\"x; y\r\nx; z@b.co; y\r\n\"", "\"\nx;z@b.co\n;;w@b.co;x\"",
}

// naiveCells are cells of exporters that neither double quotes nor close all of them, and of some that quote correctly.
var naiveCells = append([]string{
	`"Associação dos Moradores do Bairro Nov`, `Loja "X"`, `tela 12"`, `"`, `"""`, `"Zé" Silva`, "\"\n",
}, correctCells...)

var isAddress = regexp.MustCompile(`^u[0-9]+@b\.co$`)

// Every row of a file has an address of its own. Whatever the quotes in it mean, each line is a row, or one of the
// lines that an error reports, or a line of a cell, which has no address where the other rows have theirs, except behind
// the cell in a record of full width. If the quotes are correct, no line of a cell is a row.
func TestReader_LosesNoRow(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		columns := rapid.IntRange(1, 4).Draw(t, "columns")
		address := rapid.IntRange(0, columns-1).Draw(t, "address")
		names := slice(columns, func(n int) string { return fmt.Sprint("column", n) })
		names[address] = "email"
		correct := rapid.Bool().Draw(t, "correct")
		values := naiveCells
		if correct {
			values = correctCells
		}
		file := strings.Join(names, ";") + "\n"
		for range rapid.IntRange(1, 30).Draw(t, "rows") {
			cells := slice(columns, func(int) string {
				return rapid.OneOf(rapid.Just("x"), rapid.SampledFrom(values)).Draw(t, "cell")
			})
			cells[address] = fmt.Sprintf("u%d@b.co", 1+strings.Count(file, "\n"))
			cells = cells[:rapid.IntRange(address+1, columns).Draw(t, "fields")]
			file += strings.Join(cells, ";") + "\n"
		}
		in := csvfile.NewInspector()
		if _, err := io.WriteString(in, file); err != nil {
			t.Fatal(err)
		}
		r, err := csvfile.Open(strings.NewReader(file), in.Inspection(), csvfile.Options{Delimiter: ';'})
		if err != nil {
			t.Fatal(err)
		}
		lines := strings.Split(file, "\n")
		next := 2
		for {
			row, err := r.Next()
			bad, isBad := errors.AsType[*csvfile.RowError](err)
			first, last := row.Line, row.LastLine
			switch {
			case errors.Is(err, io.EOF):
				first, last = len(lines)+1, len(lines)
			case isBad:
				first, last = bad.Line, bad.LastLine
			case err != nil:
				t.Fatal(err)
			}
			for ; next < first && next <= len(lines); next++ {
				if strings.Contains(lines[next-1], "@") {
					t.Fatalf("line %d of %q belongs to no row", next, file)
				}
			}
			if next = last + 1; next > len(lines) {
				return
			}
			if correct && !isBad && string(row.Field(address)) != fmt.Sprintf("u%d@b.co", first) {
				t.Fatalf("line %d of %q is a row with the address %q", first, file, row.Field(address))
			}
			if isBad || !isAddress.Match(row.Field(address)) { // package mailing rejects the row
				continue
			}
			full := len(row.Field(columns-1)) > 0 // what is behind its last cell may as well be its own: a second address
			for line := first; line < last || line == last && !full; line++ {
				own := fmt.Sprintf("u%d@b.co", line)
				if fields := strings.Split(lines[line-1], ";"); len(fields) > address && strings.Trim(fields[address], `"`) == own && string(row.Field(address)) != own {
					t.Fatalf("line %d of %q is text of %q", line, file, row.Field(address))
				}
			}
		}
	})
}

// A quote is opened in row 50 and closed in row 250: none of these rows is sent to the recipient of another, and all of
// them are reported.
func TestReader_QuoteClosedInAnotherRow(t *testing.T) {
	t.Parallel()
	for _, format := range []string{"Obs;E-mail;UF\n%s;u%d@x.com;SP\n", "E-mail;Obs;UF\nu%[2]d@x.com;%[1]s;SP\n"} {
		header, row, _ := strings.Cut(format, "\n")
		file := header + "\n"
		for n := range 300 {
			file += fmt.Sprintf(row, map[int]string{50: `"Bar do Zé`, 250: `tela 12"`}[n], n)
		}
		r, err := open(t, file, csvfile.Options{})
		if err != nil {
			t.Fatal(err)
		}
		got := readAll(r)
		if len(got) != 100 || got[50] != "52-252: ROW_IN_QUOTES Obs" || !strings.Contains(got[51], "u251@x.com") {
			t.Errorf("%s: %d rows, want 99 and an error in row 50: %q", header, len(got), got[min(50, len(got)-1)])
		}
	}
}

func TestReader_RowsInCells(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		file    string
		limit   int
		want    []string
		message string
	}{
		"two rows": {
			file: "nome;email;obs\n\"Ana;a@b.co;x\ntela 12\";b@b.co;y\n",
			want: []string{"2-3: ROW_IN_QUOTES nome"},
		},
		"two rows, and the quotes are in different columns": {
			file: "nome;email;obs\n\"Ana;a@b.co;x\nRui;r@b.co;y\nEva;e@b.co;tela 12\"\n",
			want: []string{"2-4: ROW_IN_QUOTES nome"},
		},
		"the quote is in the address": {
			file: "nome;email;obs\nAna;\"a@b.co;x\nRui;r@b.co\";y\n",
			want: []string{"2-3: ROW_IN_QUOTES email"},
		},
		"rows and a line that is none, and a shorter row after them": {
			file: "nome;email;obs\nAna;a@b.co;\"oi\nRui;r@b.co;y\nfim\"\nEva;e@b.co\nBia;b@b.co;x\n",
			want: []string{"2-4: ROW_IN_QUOTES obs", "5: WRONG_FIELD_COUNT obs", "6: Bia|b@b.co|x"},
		},
		"a row that has too many fields by itself": {
			file: "nome;email;obs\nAna;a@b.co;\"oi\nRui;r@b.co;y;z;w\"\n",
			want: []string{"2-3: ROW_IN_QUOTES obs"},
		},
		"addresses among other words": {
			file: "email;obs;uf\na@b.co;\"fale com\nAna b@b.co; c@b.co\n(d@b.co)\nou com e@b.co; f@b.co; g@b.co\n\";SP\n",
			want: []string{"2-6: a@b.co|fale com\nAna b@b.co; c@b.co\n(d@b.co)\nou com e@b.co; f@b.co; g@b.co|SP"},
		},
		"addresses in a note, as many as columns": {
			file: "email;obs\na@b.co;\"fale com\nb@b.co; c@b.co\n\"\nd@b.co;x\n",
			want: []string{"2-4: ROW_IN_QUOTES obs", "5: d@b.co|x"},
		},
		"another column with addresses, behind a cell": {
			file: "nome;email;obs;email_vendedor\nAna;ana@b.co;\"l1\nl2\";v@b.co\nEva;eva@b.co;x;v@b.co\n",
			want: []string{"2-3: Ana|ana@b.co|l1\nl2|v@b.co", "4: Eva|eva@b.co|x|v@b.co"},
		},
		"another column with addresses, and the cell before the first one": {
			file: "nome;endereco;email;email2\nAna;\"Rua A\nnº 3\";ana@b.co;b@b.co\n",
			want: []string{"2-3: Ana|Rua A\nnº 3|ana@b.co|b@b.co"},
		},
		"the own address in a note": {
			file: "email;obs\nana@b.co;\"Contato:\nAna@b.co; 9999\"\n",
			want: []string{"2-3: ana@b.co|Contato:\nAna@b.co; 9999"},
		},
		"a contact in a note": {
			file: "Name;Email;Notes\nBia;b@b.co;\"Other contact:\nBob Smith; bob@x.com; 555-1234\"\n",
			want: []string{"2-3: ROW_IN_QUOTES Notes"},
		},
		"contacts in a note": {
			file: "email;obs\nb@b.co;\"Contatos:\nrui@x.com; vendas\neva@x.com; compras\"\nc@b.co;x\n",
			want: []string{"2-4: ROW_IN_QUOTES obs", "5: c@b.co|x"},
		},
		"a list of addresses": {
			file: "email;obs\nb@b.co;\"rui@x.com;\neva@x.com;\nana@x.com;\"\nc@b.co;x\n",
			want: []string{"2-4: ROW_IN_QUOTES obs", "5: c@b.co|x"},
		},
		"contacts in a note that is longer than the limit": {
			file:  "email;fone;obs\nb@b.co;\"1\n2\";\"Contatos:\nrui@x.com; vendas" + strings.Repeat(" ", 64) + "\"\nc@b.co;1;x\n",
			limit: 64,
			want:  []string{"2-3: ROW_IN_QUOTES fone", "4: LINE_TOO_LONG", "5: c@b.co|1|x"},
		},
		"a chain of cells that is not closed": {
			file: "email;obs;uf\na@b.co;\"Contatos:\nrui@x.com;vendas;SP\nfim\";\"x\nc@b.co;Ana;\"SP\"\n",
			want: []string{"2-4: ROW_IN_QUOTES obs", "5: c@b.co|Ana|SP"},
		},
		"rows that are shorter than most": {
			file: "nome;email;obs\nAna;a@b.co;x\nEva;e@b.co;y\n\"Bar;b@b.co\nRui;r@b.co\ntela 12\";t@b.co\n",
			want: []string{"2: Ana|a@b.co|x", "3: Eva|e@b.co|y", "4-6: ROW_IN_QUOTES nome"},
		},
		"rows that are only an address": {
			file: "email;obs\na@b.co;\"x\nb@b.co\nc@b.co;tela 12\"\nd@b.co;y\n",
			want: []string{"2-4: ROW_IN_QUOTES obs", "5: d@b.co|y"},
		},
		"rows as short as most, and blank lines": {
			file: "nome;email;obs\nAna;a@b.co\nBia;b@b.co\n\"Caio;c@b.co\n\nDavi\";d@b.co\n",
			want: []string{"2: Ana|a@b.co|", "3: Bia|b@b.co|", "4-6: ROW_IN_QUOTES nome"},
		},
		"a row in the header": {
			file: "email;\"obs\na@b.co;tela 12\"\nb@b.co;y\n",
			want: []string{"line 1: NO_HEADER"}, message: "a line of a quoted name looks like a row",
		},
		"a row and an open quote in the header": {
			file: "email;\"obs\na@b.co;tela 12\";\"x\nb@b.co;y\n",
			want: []string{"line 1: NO_HEADER"}, message: "a quote in it is not closed",
		},
		"a line break in the header": {
			file: "email;\"obs\n(@)\"\nb@b.co;y\n",
			want: []string{"3: b@b.co|y"},
		},
		"an example in the header": {
			file: "email;\"Obs\nEx.: ana@x.com\n(suporte@x.com)\n(fale com suporte@x.com)\"\nb@b.co;y\n",
			want: []string{"5: b@b.co|y"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r, err := open(t, tt.file, csvfile.Options{Delimiter: ';', Limits: csvfile.Limits{LineBytes: tt.limit}})
			var got []string
			if err == nil {
				got = readAll(r)
			} else {
				got = []string{ending(err)}
				if !strings.Contains(err.Error(), tt.message) {
					t.Errorf("message %q, want %q", err, tt.message)
				}
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("(-want +got)\n%s", diff)
			}
		})
	}
}
