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

// naiveCells are cells of exporters that neither double quotes nor close all of them, and of some that quote correctly.
var naiveCells = []string{
	"", "x", "Natal", `"Associação dos Moradores do Bairro Nov`, `Loja "X"`, `tela 12"`, `"`, `""`, `"""`, `"Zé" Silva`, `"a;b"`, "\"Rua A\nnº 3\"",
	"\"oi\n\nfale com z@b.co; obrigado\"", "\"\n", "\"diz \"\"olá\"\"\"",
}

var isAddress = regexp.MustCompile(`^u[0-9]+@b\.co$`)

// Every line of a file has an address of its own. Whatever the quotes in it mean, each line is a row, or one of the
// lines that an error reports, or a line of a cell. A line of a cell is not a whole row, with the address where the
// other rows have theirs.
func TestReader_LosesNoRow(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		columns := rapid.IntRange(1, 4).Draw(t, "columns")
		address := rapid.IntRange(0, columns-1).Draw(t, "address")
		names := slice(columns, func(n int) string { return fmt.Sprint("column", n) })
		names[address] = "email"
		file := strings.Join(names, ";") + "\n"
		for range rapid.IntRange(1, 30).Draw(t, "rows") {
			cells := slice(columns, func(int) string {
				return rapid.OneOf(rapid.Just("x"), rapid.SampledFrom(naiveCells)).Draw(t, "cell")
			})
			cells[address] = fmt.Sprintf("u%d@b.co", 1+strings.Count(file, "\n"))
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
			if isBad || !isAddress.Match(row.Field(address)) { // package mailing rejects the row
				continue
			}
			for line := first; line <= last; line++ {
				own := fmt.Sprintf("u%d@b.co", line)
				if fields := strings.Split(lines[line-1], ";"); len(fields) == columns && strings.Trim(fields[address], `"`) == own && string(row.Field(address)) != own {
					t.Fatalf("line %d of %q is text of %q", line, file, row.Field(address))
				}
			}
		}
	})
}

// A quote is opened in row 50 and closed in row 250: all rows but the first are sent, and none is sent to another recipient.
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
		if len(got) != 300 || got[50] != "52: UNCLOSED_QUOTE Obs" || !strings.Contains(got[250], "u250@x.com") || !strings.Contains(got[250], `tela 12"`) {
			t.Errorf("%s: %d rows, want 300 and an error in row 50: %q", header, len(got), got[min(50, len(got)-1)])
		}
	}
}

func TestReader_RowsInCells(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		file string
		want []string
	}{
		"two rows": {
			file: "nome;email;obs\n\"Ana;a@b.co;x\ntela 12\";b@b.co;y\n",
			want: []string{"2: UNCLOSED_QUOTE nome", "3: tela 12\"|b@b.co|y"},
		},
		"two rows, and the quotes are in different columns": {
			file: "nome;email;obs\n\"Ana;a@b.co;x\nRui;r@b.co;y\nEva;e@b.co;tela 12\"\n",
			want: []string{"2: UNCLOSED_QUOTE nome", "3: Rui|r@b.co|y", "4: Eva|e@b.co|tela 12\""},
		},
		"the quote is in the address": {
			file: "nome;email;obs\nAna;\"a@b.co;x\nRui;r@b.co\";y\n",
			want: []string{"2: UNCLOSED_QUOTE email", "3: Rui|r@b.co\"|y"},
		},
		"rows and a line that is none": {
			file: "nome;email;obs\nAna;a@b.co;\"oi\nRui;r@b.co;y\nfim\"\nEva;e@b.co\n",
			want: []string{"2-4: ROW_IN_QUOTES obs", "5: Eva|e@b.co|"},
		},
		"a row that has too many fields by itself": {
			file: "nome;email;obs\nAna;a@b.co;\"oi\nRui;r@b.co;y;z;w\"\n",
			want: []string{"2-3: Ana|a@b.co|oi\nRui;r@b.co;y;z;w"},
		},
		"addresses in a note": {
			file: "email;obs;uf\na@b.co;\"fale com\nb@b.co; c@b.co\nou com d@b.co; e@b.co; f@b.co\n\";SP\n",
			want: []string{"2-5: a@b.co|fale com\nb@b.co; c@b.co\nou com d@b.co; e@b.co; f@b.co|SP"},
		},
		"addresses in a note, as many as columns": {
			file: "email;obs\na@b.co;\"fale com\nb@b.co; c@b.co\n\"\nd@b.co;x\n",
			want: []string{"2-4: ROW_IN_QUOTES obs", "5: d@b.co|x"},
		},
		"rows as short as most, and blank lines": {
			file: "nome;email;obs\nAna;a@b.co\nBia;b@b.co\n\"Caio;c@b.co\n\nDavi\";d@b.co\n",
			want: []string{"2: Ana|a@b.co|", "3: Bia|b@b.co|", "4: UNCLOSED_QUOTE nome", "6: Davi\"|d@b.co|"},
		},
		"a row in the header": {
			file: "email;\"obs\na@b.co;tela 12\"\nb@b.co;y\n",
			want: []string{"line 1: NO_HEADER"},
		},
		"a line break in the header": {
			file: "email;\"obs\n(@)\"\nb@b.co;y\n",
			want: []string{"3: b@b.co|y"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r, err := open(t, tt.file, csvfile.Options{Delimiter: ';'})
			var got []string
			if err == nil {
				got = readAll(r)
			} else {
				got = []string{ending(err)}
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("(-want +got)\n%s", diff)
			}
		})
	}
}
