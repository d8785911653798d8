package csvfile_test

import (
	"errors"
	"fmt"
	"io"
	"runtime"
	"strings"
	"testing"

	"golang.org/x/text/encoding/unicode"

	"email-gateway/api/internal/csvfile"
)

// list is a typical mailing: about 100 bytes per row.
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
	linesRow  = "João Conceição da Silva %d;joao.silva.%d@exemplo.com.br;529.982.247-25;\"Silva Comércio Ltda\nRua A; nº 3\nCentro\";São Paulo;PROMO%d;31/12/2026\n"
)

// readThrough accesses every field, as the ingestion does.
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
		{"line breaks", list(rows, linesRow)},
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

// brokenRows are rows that are invalid in the most expensive ways.
var brokenRows = map[string]string{
	"closed on the next line":  "\"João Conceição da Silva;joao.silva@exemplo.com.br;São Paulo\n",
	"doubled to the end":       "joao.silva@exemplo.com.br;\"João \"\"Zé\"\" Silva;x\"\"\"\"y\n",
	"never closed":             strings.Repeat("joao.silva@exemplo.com.br;João\n", 2000) + "a@b.co;\"João\n",
	"closed in another row":    "\"João;joao.silva@exemplo.com.br\n" + strings.Repeat("joao.silva@exemplo.com.br;João\n", 2000) + "tela 12\";a@b.co\n",
	"CR alone":                 "joao.silva@exemplo.com.br;\"João Conceição da Silva;São Paulo\r",
	"chain without an end":     "x\";a@b.co;\"y\n",
	"chain in CR without end":  "x\";a@b.co;\"y\r",
	"chain of two columns":     "x\";\"a@b.co\n",
	"chain within the limit":   "a@b.co;\"y\n" + strings.Repeat("a@b.co\";\"y\n", 4000) + "a@b.co;y\"\n",
	"chain to a closing quote": "a@b.co;\"y\n" + strings.Repeat("x\";a@b.co;\"y\n", 3000) + "a@b.co\" y\n",
}

// BenchmarkReader_Broken reads files of such rows: its speed must not depend on the limit.
func BenchmarkReader_Broken(b *testing.B) {
	for name, row := range brokenRows {
		b.Run(name, func(b *testing.B) {
			file := "nome;email\n" + strings.Repeat(row, 1+(8<<20)/len(row))
			seen := inspect(b, file)
			b.SetBytes(int64(len(file)))
			for b.Loop() {
				r, err := csvfile.Open(strings.NewReader(file), seen, csvfile.Options{Delimiter: ';'})
				for err == nil || errors.As(err, new(*csvfile.RowError)) {
					_, err = r.Next()
				}
				if !errors.Is(err, io.EOF) {
					b.Fatal(err)
				}
			}
		})
	}
}

// A file is read in linear time: nothing is searched again for each line of a record.
func TestReader_LooksAtBytesOnce(t *testing.T) {
	t.Parallel()
	for name, row := range brokenRows {
		file := "nome;email\n" + strings.Repeat(row, 1+(1<<20)/len(row))
		r, err := open(t, file, csvfile.Options{Delimiter: ';'})
		for (err == nil || errors.As(err, new(*csvfile.RowError))) && r.Looked() <= 3*len(file) {
			_, err = r.Next()
		}
		if looked := r.Looked(); !errors.Is(err, io.EOF) || looked > 3*len(file) {
			t.Errorf("%s: %d bytes of a file of %d were looked at, error %v, want at most three times as many and EOF", name, looked, len(file), err)
		}
	}
}

func BenchmarkInspector(b *testing.B) {
	file := list(100_000, plainRow)
	b.SetBytes(int64(len(file)))
	b.ReportAllocs()
	for b.Loop() {
		if _, err := io.Copy(struct{ io.Writer }{csvfile.NewInspector()}, struct{ io.Reader }{strings.NewReader(file)}); err != nil {
			b.Fatal(err)
		}
	}
}

// repeated is a generated file of the given size.
type repeated struct {
	header, row string
	rows        int
	rest        string
}

func (f *repeated) Read(p []byte) (int, error) {
	if f.rest == "" {
		if f.rows == 0 {
			return 0, io.EOF
		}
		f.rest, f.header = f.header+f.row, ""
		f.rows--
	}
	n := copy(p, f.rest)
	f.rest = f.rest[n:]
	return n, nil
}

// A file of 15 MB needs as much memory as one of a few rows, also if it is a single line.
func TestReader_Memory(t *testing.T) {
	row := "joao.silva@exemplo.com.br;João Conceição;\"" + strings.Repeat("á", 30) + "\n\"\"\"\n"
	checkMemory(t, func() *repeated { return &repeated{header: "email;nome;obs\n", row: row, rows: 150_000} }, 150_000)
	checkMemory(t, func() *repeated {
		return &repeated{header: "email;nome;obs\n", row: strings.Repeat("joao;", 3_000), rows: 1_000}
	}, 1)
}

func checkMemory(t *testing.T, file func() *repeated, rows int) {
	t.Helper()
	const most = 1 << 20
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	in := csvfile.NewInspector()
	if _, err := io.Copy(in, file()); err != nil {
		t.Fatal(err)
	}
	r, err := csvfile.Open(file(), in.Inspection(), csvfile.Options{})
	if err != nil {
		t.Fatal(err)
	}
	read := 0
	for ; ; read++ {
		row, err := r.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil && !errors.As(err, new(*csvfile.RowError)) {
			t.Fatal(err)
		}
		if err == nil {
			_ = row.Field(2)
		}
	}
	runtime.ReadMemStats(&after)
	if allocated := after.TotalAlloc - before.TotalAlloc; read != rows || allocated > most {
		t.Errorf("%d rows took %d bytes of memory altogether, want %d rows in at most %d", read, allocated, rows, most)
	}
}

// Reading rows allocates nothing; only errors allocate.
func TestReader_Allocations(t *testing.T) {
	for name, tt := range map[string]struct {
		row  string
		most float64
	}{
		"plain":       {"a@b.co;João;Recife\n", 0},
		"quoted":      {"\"a@b.co\";\"João \"\"Zé\"\"\n\";Recife\n", 0},
		"wrong count": {"a@b.co;João;Recife;PE\n", 1},
		"unclosed":    {"a@b.co;\"João\n", 1},
		"too long":    {strings.Repeat("a@b.co;", 50) + "\n", 1},
	} {
		file := "email;nome;cidade\n" + strings.Repeat(tt.row, 20_000)
		r, err := open(t, file, csvfile.Options{Limits: csvfile.Limits{LineBytes: 256}})
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
