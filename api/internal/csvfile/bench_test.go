package csvfile_test

import (
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"

	"golang.org/x/text/encoding/unicode"

	"email-gateway/api/internal/csvfile"
)

// list is a mailing as most are: about 100 bytes a row.
func list(rows int, format string) string {
	var file strings.Builder
	file.WriteString("nome;email;cpf;razão social;cidade;cupom;vencimento\n")
	for n := range rows {
		fmt.Fprintf(&file, format, n, n, n)
	}
	return file.String()
}

const (
	plainRow  = "João Conceição da Silva %d;joao.silva.%d@exemplo.com.br;529.982.247-25;Silva Comércio Ltda;São Paulo;PROMO%d;31/12/2026\n"
	quotedRow = "\"João Conceição da Silva %d\";\"joao.silva.%d@exemplo.com.br\";\"529.982.247-25\";\"Silva \"\"Bom\"\" Ltda\";\"São Paulo\";\"PROMO%d\";\"31/12/2026\"\n"
)

// readThrough touches every field, as the intake does.
func readThrough(tb testing.TB, r *csvfile.Reader) (rows int) {
	tb.Helper()
	for {
		row, err := r.Next()
		if errors.Is(err, io.EOF) {
			return rows
		}
		if err != nil {
			tb.Fatal(err)
		}
		rows++
		for i := range 7 {
			if len(row.Field(i)) == 0 {
				tb.Fatalf("line %d: column %d is empty", row.Line, i)
			}
		}
	}
}

func BenchmarkReader(b *testing.B) {
	const rows = 100_000
	plain := list(rows, plainRow)
	for _, bb := range []struct{ name, file string }{
		{"plain", plain},
		{"CRLF", strings.ReplaceAll(plain, "\n", "\r\n")},
		{"quoted", list(rows, quotedRow)},
		{"windows-1252", windows1252(plain)},
		{"utf-16", utf16(unicode.LittleEndian, unicode.UseBOM, plain)},
	} {
		b.Run(bb.name, func(b *testing.B) {
			seen := inspect(b, bb.file)
			b.SetBytes(int64(len(bb.file)))
			b.ReportAllocs()
			for b.Loop() {
				r, err := csvfile.Open(strings.NewReader(bb.file), seen, csvfile.Options{})
				if err != nil {
					b.Fatal(err)
				}
				if n := readThrough(b, r); n != rows {
					b.Fatalf("%d rows", n)
				}
			}
		})
	}
}

func BenchmarkInspector(b *testing.B) {
	file := list(100_000, plainRow)
	b.SetBytes(int64(len(file)))
	b.ReportAllocs()
	for b.Loop() {
		inspect(b, file)
	}
}

// Rows cost nothing but the time to read them; errors cost themselves.
func TestReader_Allocations(t *testing.T) {
	for name, tt := range map[string]struct {
		row  string
		most float64
	}{
		"plain":       {"a@b.co;João;Recife\n", 0},
		"quoted":      {"\"a@b.co\";\"João \"\"Zé\"\"\n\";Recife\n", 0},
		"wrong count": {"a@b.co;João;Recife;PE\n", 1},
		"unclosed":    {"a@b.co;\"João\n", 1},
	} {
		file := "email;nome;cidade\n" + strings.Repeat(tt.row, 20_000)
		r, err := open(t, file, csvfile.Options{})
		if err != nil {
			t.Fatal(err)
		}
		got := testing.AllocsPerRun(10_000, func() {
			row, err := r.Next()
			if errors.Is(err, io.EOF) {
				t.Fatal("the file is too short for the test")
			}
			if err == nil {
				for i := range 3 {
					_ = row.Field(i)
				}
			}
		})
		if got > tt.most {
			t.Errorf("%s: %v allocations per row, want at most %v", name, got, tt.most)
		}
	}
}
