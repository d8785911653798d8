package csvfile_test

import (
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/text/encoding/charmap"
	"golang.org/x/text/encoding/unicode"

	"email-gateway/api/internal/csvfile"
)

// inspect simulates the upload of a file.
func inspect(tb testing.TB, file string) csvfile.Inspection {
	tb.Helper()
	in := csvfile.NewInspector()
	if _, err := io.WriteString(in, file); err != nil {
		tb.Fatal(err)
	}
	return in.Inspection()
}

func open(tb testing.TB, file string, options csvfile.Options) (*csvfile.Reader, error) {
	tb.Helper()
	return csvfile.Open(strings.NewReader(file), inspect(tb, file), options)
}

// readAll formats a file as lines "2: field|field" and "3: CODE column", followed by the error that ended it.
func readAll(r *csvfile.Reader) []string {
	var lines []string
	for {
		row, err := r.Next()
		var bad *csvfile.RowError
		switch {
		case err == nil:
			var fields []string
			for i := range r.Header().Columns() {
				fields = append(fields, string(row.Field(i)))
			}
			lines = append(lines, span(row.Line, row.LastLine)+": "+strings.Join(fields, "|"))
		case errors.As(err, &bad):
			lines = append(lines, strings.TrimSpace(fmt.Sprintf("%s: %s %s", span(bad.Line, bad.LastLine), bad.Code, bad.Column)))
		case errors.Is(err, io.EOF):
			return lines
		default:
			return append(lines, ending(err))
		}
	}
}

func span(first, last int) string {
	if last == first {
		return fmt.Sprint(first)
	}
	return fmt.Sprintf("%d-%d", first, last)
}

// ending formats a file's error as "CODE" or "line 3: CODE".
func ending(err error) string {
	var fault *csvfile.FileError
	switch {
	case !errors.As(err, &fault):
		return "not a FileError: " + err.Error()
	case fault.Line == 0:
		return fault.Code
	}
	return fmt.Sprintf("line %d: %s", fault.Line, fault.Code)
}

func windows1252(text string) string {
	out, err := charmap.Windows1252.NewEncoder().String(text)
	if err != nil {
		panic(err)
	}
	return out
}

func utf16(endianness unicode.Endianness, mark unicode.BOMPolicy, text string) string {
	out, err := unicode.UTF16(endianness, mark).NewEncoder().String(text)
	if err != nil {
		panic(err)
	}
	return out
}

func TestReader(t *testing.T) {
	t.Parallel()
	const marked = "\ufeff"
	for name, tt := range map[string]struct {
		file    string
		options csvfile.Options
		want    []string
	}{
		"Excel in Portuguese": {
			file: windows1252("Nome;E-mail;Valor\r\nJoão Conceição;joao@exemplo.com.br;1.234,50\r\n“Zé” – Açaí €5;ze@exemplo.com.br;0,99\r\n"),
			want: []string{"2: João Conceição|joao@exemplo.com.br|1.234,50", "3: “Zé” – Açaí €5|ze@exemplo.com.br|0,99"},
		},
		"cells that show nothing": {
			file: "email;nome;cidade\na@b.co;\ufe0f;\U000e0041\U000e0042\nc@d.co; \ufe0f \u200b\ufe0f;❤\ufe0f\n",
			want: []string{"2: a@b.co||", "3: c@d.co||❤\ufe0f"},
		},
		"errors of spreadsheets": {
			file: "email;nome;cidade\na@b.co;#N/D; =\"#REF!\" \n#VALOR!;\\N;#NÚM!\nb@b.co;#N/D é um erro;\\n\nc@b.co;NULL;#1\n",
			want: []string{"2: a@b.co||", "3: ||", "4: b@b.co|#N/D é um erro|\\n", "5: c@b.co|NULL|#1"},
		},
		"Excel CSV UTF-8: mark and quoted header": {
			file: marked + "\"Nome\";\"Email\"\r\n\"Silva; João\";joao@exemplo.com.br\r\n",
			want: []string{"2: Silva; João|joao@exemplo.com.br"},
		},
		"two marks": {
			file: marked + marked + "email;nome\na@b.co;Zé\n",
			want: []string{"2: a@b.co|Zé"},
		},
		"Excel Unicode text": {
			file: utf16(unicode.LittleEndian, unicode.UseBOM, "nome\te-mail\r\nJoão\tjoao@exemplo.com.br\r\n\"Maria \"\"Bia\"\"\"\tmaria@exemplo.com.br\r\n"),
			want: []string{"2: João|joao@exemplo.com.br", "3: Maria \"Bia\"|maria@exemplo.com.br"},
		},
		"UTF-16 big endian": {
			file: utf16(unicode.BigEndian, unicode.UseBOM, "email,nome\na@b.co,Zoë 😀\n"),
			want: []string{"2: a@b.co|Zoë 😀"},
		},
		"UTF-16 without mark": {
			file: utf16(unicode.LittleEndian, unicode.IgnoreBOM, "email,nome\na@b.co,Zé\n"),
			want: []string{"2: a@b.co|Zé"},
		},
		"half an emoji": {
			file: "\xff\xfe" + utf16(unicode.LittleEndian, unicode.IgnoreBOM, "email,nome\na@b.co,Zé ") + "\x3d\xd8" + utf16(unicode.LittleEndian, unicode.IgnoreBOM, "!\n"),
			want: []string{"line 2: INVALID_ENCODING"},
		},
		"sep line": {
			file: "sep=;\r\nemail;nome\r\na@b.co;Silva, Zé\r\n",
			want: []string{"3: a@b.co|Silva, Zé"},
		},
		"sep line against the looks": {
			file: "SEP=|\nemail,x|nome,y\na@b.co|Zé\n",
			want: []string{"line 2: NO_EMAIL_COLUMN"},
		},
		"sep line saved again": {
			file: marked + "\"sep=,\",,\nemail,nome,cidade\na@b.co,Zé,Recife\n",
			want: []string{"3: a@b.co|Zé|Recife"},
		},
		"sep line and a delimiter given": {
			file:    "sep=;\nemail,nome\na@b.co,Zé;1\n",
			options: csvfile.Options{Delimiter: ','},
			want:    []string{"3: a@b.co|Zé;1"},
		},
		"sep column is no sep line": {
			file: "sep=s,email\nx,a@b.co\n",
			want: []string{"2: x|a@b.co"},
		},
		"CR alone": {
			file: "email;nome\ra@b.co;Zé\r\rc@d.co;\"Bia\rMaria\"\r",
			want: []string{"2: a@b.co|Zé", "4-5: c@d.co|Bia\nMaria"},
		},
		"all line ends at once, none at the end": {
			file: "email;nome\r\na@b.co;A\nb@b.co;B\rc@b.co;C",
			want: []string{"2: a@b.co|A", "3: b@b.co|B", "4: c@b.co|C"},
		},
		"line ends in quotes": {
			file: "email,endereço\na@b.co,\"Rua A\r\nnº 3\n\nRecife\"\nc@d.co,x\n",
			want: []string{"2-5: a@b.co|Rua A\nnº 3\n\nRecife", "6: c@d.co|x"},
		},
		"one column": {
			file: "E-mail\na@b.co\nc@d.co\n",
			want: []string{"2: a@b.co", "3: c@d.co"},
		},
		"pipes": {
			file: "email|nome\na@b.co|Silva, Zé; Jr\n",
			want: []string{"2: a@b.co|Silva, Zé; Jr"},
		},
		"commas with semicolons in the text": {
			file: "email,obs\na@b.co,um; dois; três\nb@b.co,um; dois\n",
			want: []string{"2: a@b.co|um; dois; três", "3: b@b.co|um; dois"},
		},
		"semicolons with decimal commas": {
			file: "email;preço, em reais;peso\na@b.co;1,50;2,0\nb@b.co;2,50;3,1\n",
			want: []string{"2: a@b.co|1,50|2,0", "3: b@b.co|2,50|3,1"},
		},
		"delimiters in quotes do not vote": {
			file: "\"email\",\"nome; sobrenome; apelido\"\n\"a@b.co\",\"x; y; z\"\n",
			want: []string{"2: a@b.co|x; y; z"},
		},
		"quotes in the middle": {
			file: "nome;email\nJoão \"Zé\" Silva;ze@b.co\nTV 42\";tv@b.co\n",
			want: []string{"2: João \"Zé\" Silva|ze@b.co", "3: TV 42\"|tv@b.co"},
		},
		"text after a closing quote": {
			file: "nome;email\n\"João\" Silva;a@b.co\n\"Loja \"X\" Ltda\";\"b@b.co\"\n\"Zé\"\t;c@b.co\n",
			want: []string{"2: \"João\" Silva|a@b.co", "3: Loja \"X\" Ltda|b@b.co", "4: Zé|c@b.co"},
		},
		"spaces before a quote": {
			file: "email, nome\na@b.co, \"Silva, João\"\n",
			want: []string{"2: a@b.co|Silva, João"},
		},
		"formulas that hold a text": {
			file: "=\"E-mail\";=\"CPF\";nome\r\n=\"a@b.co\";=\"00012345678\";\"=\"\"Zé; Bia\"\"\"\r\n= \"x\";=\" b@b.co \";=A1\r\n=\"a\"\"b\";=\"\";=\"\r\n",
			want: []string{"2: a@b.co|00012345678|Zé; Bia", "3: = \"x\"|b@b.co|=A1", "4: =\"a\"\"b\"||=\""},
		},
		"empty quotes": {
			file: "email;nome;x\na@b.co;\"\";\"\"\"\"\n\"b@b.co\";;\"\"",
			want: []string{"2: a@b.co||\"", "3: b@b.co||"},
		},
		"an unclosed quote": {
			file: "nome;email\n\"João;a@b.co\nMaria;b@b.co\nAna;c@b.co\n",
			want: []string{"2: UNCLOSED_QUOTE nome", "3: Maria|b@b.co", "4: Ana|c@b.co"},
		},
		"a quote that the next line would close": {
			file: "nome;email\n\"João\";\"a@b.co\n\"Maria\";\"b@b.co\"\nAna;c@b.co\n",
			want: []string{"2: UNCLOSED_QUOTE email", "3: Maria|b@b.co", "4: Ana|c@b.co"},
		},
		"a quote in the last line": {
			file: "nome;email\nAna;c@b.co\nMaria;\"b@b.co",
			want: []string{"2: Ana|c@b.co", "3: UNCLOSED_QUOTE email"},
		},
		"a quoted field that is longer than the limit": {
			file:    "nome;email\n\"" + strings.Repeat("abc\n", 20) + "\";a@b.co\nAna;c@b.co\n",
			options: csvfile.Options{Limits: csvfile.Limits{LineBytes: 64}, Delimiter: ';'},
			want: append(append([]string{"2: UNCLOSED_QUOTE nome"},
				slice(19, func(n int) string { return fmt.Sprintf("%d: WRONG_FIELD_COUNT email", n+3) })...),
				"22: UNCLOSED_QUOTE nome", "23: Ana|c@b.co"),
		},
		"lines of a cell that is longer than the limit are not rows": {
			file: "email;nome;historico\na@b.co;Ana;\"oi\nmaria@x.com\n" + strings.Repeat("abc\n", 16) + "c@x.com; d@x.com\nfim\"\n" +
				"b@b.co;Bia\nc@b.co;Caio;;\nd@b.co;Davi\n",
			options: csvfile.Options{Limits: csvfile.Limits{LineBytes: 64}, Delimiter: ';'},
			want: append(append([]string{"2: UNCLOSED_QUOTE historico"},
				slice(17, func(n int) string { return fmt.Sprintf("%d: WRONG_FIELD_COUNT nome", n+3) })...),
				"20: WRONG_FIELD_COUNT historico", "21: WRONG_FIELD_COUNT nome", "22: WRONG_FIELD_COUNT historico", "23: c@b.co|Caio|", "24: d@b.co|Davi|"),
		},
		"lines of a cell with quotes that are not doubled are not rows": {
			file: "email;historico;cidade\na@b.co;\"Disse \"ok\"\nmaria@x.com\nfim\";Natal\nb@b.co;x;Recife\nc@b.co\n",
			want: []string{"2: a@b.co|Disse \"ok|", "3: WRONG_FIELD_COUNT historico", "4: WRONG_FIELD_COUNT cidade", "5: b@b.co|x|Recife", "6: c@b.co||"},
		},
		"such a cell in the last column": {
			file: "email;cidade;historico\na@b.co;Natal;\"Disse \"ok\"\nmaria@x.com\nfim\"\nb@b.co;Recife;x\nc@b.co\n",
			want: []string{"2: a@b.co|Natal|Disse \"ok", "3: WRONG_FIELD_COUNT cidade", "4: WRONG_FIELD_COUNT cidade", "5: b@b.co|Recife|x", "6: c@b.co||"},
		},
		"rows as short as those before a broken quote": {
			file: "email;nome;obs\na@b.co;Ana\nb@b.co\nc@b.co;\"Zé\" Silva\nmaria@x.com\nd@b.co;Davi\ne@b.co\nf@b.co;\"Bia\ng@b.co\nh@b.co;Hugo\n",
			want: []string{
				"2: a@b.co|Ana|", "3: b@b.co||", "4: c@b.co|\"Zé\" Silva|", "5: WRONG_FIELD_COUNT nome", "6: d@b.co|Davi|", "7: e@b.co||",
				"8: UNCLOSED_QUOTE nome", "9: WRONG_FIELD_COUNT nome", "10: h@b.co|Hugo|",
			},
		},
		"one full row before a broken quote": {
			file: "email;nome;obs\na@b.co;Ana\nb@b.co;Bia\nc@b.co;Caio;x\nd@b.co;\"Zé\" Silva\ne@b.co;Eva\n",
			want: []string{"2: a@b.co|Ana|", "3: b@b.co|Bia|", "4: c@b.co|Caio|x", "5: d@b.co|\"Zé\" Silva|", "6: e@b.co|Eva|"},
		},
		"a broken quote in the first of short rows": {
			file: "email;nome;obs\na@b.co;\"Zé\" Silva\nmaria@x.com\nb@b.co;Bia\nc@b.co\n",
			want: []string{"2: a@b.co|\"Zé\" Silva|", "3: WRONG_FIELD_COUNT nome", "4: b@b.co|Bia|", "5: c@b.co||"},
		},
		"short rows after a long line without quotes": {
			file:    "email;foto;obs\na@b.co;" + strings.Repeat("x", 1000) + "\nb@b.co\nc@b.co;y\n",
			options: csvfile.Options{Limits: csvfile.Limits{LineBytes: 64}},
			want:    []string{"2: LINE_TOO_LONG", "3: b@b.co||", "4: c@b.co|y|"},
		},
		"a quote at the end of a long line": {
			file:    "email;foto;obs\na@b.co;" + strings.Repeat("x", 1000) + "\";\"y\nb@b.co\nc@b.co;y;z\n",
			options: csvfile.Options{Limits: csvfile.Limits{LineBytes: 64}},
			want:    []string{"2: LINE_TOO_LONG", "3: WRONG_FIELD_COUNT foto", "4: c@b.co|y|z"},
		},
		"unnamed columns at the end of the header need no field": {
			file: "email;nome;;\na@b.co;\"Ana\nb@b.co;Bia\nc@b.co\n",
			want: []string{"2: UNCLOSED_QUOTE nome", "3: b@b.co|Bia", "4: c@b.co|"},
		},
		"blank rows": {
			file: "\n  \nemail;nome;x\n\na@b.co;A;1\n;;\n \t ; ;\u00a0\n\"\";\"\n\";\n;;;;;\nb@b.co;B;2\n\n\x1a",
			want: []string{"5: a@b.co|A|1", "11: b@b.co|B|2"},
		},
		"space around": {
			file: "\u00a0E-mail ;  Nome\n \u00a0a@b.co\u200b ;\" Zé \"\n",
			want: []string{"2: a@b.co|Zé"},
		},
		"short rows": {
			file: "nome;email;cidade;uf\nZé;a@b.co\nBia;b@b.co;Natal\nsó o nome\n",
			want: []string{"2: Zé|a@b.co||", "3: Bia|b@b.co|Natal|", "4: WRONG_FIELD_COUNT email"},
		},
		"long rows": {
			file: "nome;email\nZé;a@b.co;;;\nBia;b@b.co;Natal\nAna;c@b.co\n",
			want: []string{"2: Zé|a@b.co", "3: WRONG_FIELD_COUNT", "4: Ana|c@b.co"},
		},
		"nameless columns at the end": {
			file: "nome;email;;\nZé;a@b.co;;nota\nBia;b@b.co;;;x\n",
			want: []string{"2: Zé|a@b.co", "3: WRONG_FIELD_COUNT"},
		},
		"nameless column in front": {
			file: ",email,nome\n0,a@b.co,Zé\n1,b@b.co,Bia\n",
			want: []string{"2: 0|a@b.co|Zé", "3: 1|b@b.co|Bia"},
		},
		"line that is too long": {
			file:    "email;nome\na@b.co;A\nb@b.co;" + strings.Repeat("x", 100) + "\nc@b.co;C\n",
			options: csvfile.Options{Limits: csvfile.Limits{LineBytes: 64}},
			want:    []string{"2: a@b.co|A", "3: LINE_TOO_LONG", "4: c@b.co|C"},
		},
		"lines that are longer than the window": {
			file: "email;nome\r\nb@b.co;" + strings.Repeat("x", 1000) + "\r\nc@b.co;C\r" + strings.Repeat("y", 256) + "\rd@b.co;D\n" +
				strings.Repeat("z", 65) + "\ne@b.co;E\n" + strings.Repeat(";", 700),
			options: csvfile.Options{Limits: csvfile.Limits{LineBytes: 64}},
			want:    []string{"2: LINE_TOO_LONG", "3: c@b.co|C", "4: LINE_TOO_LONG", "5: d@b.co|D", "6: LINE_TOO_LONG", "7: e@b.co|E", "8: LINE_TOO_LONG"},
		},
		"lines of a cell of which one is too long are not rows": {
			file:    "email;nome\na@b.co;\"" + strings.Repeat("x", 100) + "\nmaria@x.com\n" + strings.Repeat("y", 100) + "\nfim\"\nb@b.co;B\n",
			options: csvfile.Options{Limits: csvfile.Limits{LineBytes: 64}, Delimiter: ';'},
			want:    []string{"2: LINE_TOO_LONG", "3: WRONG_FIELD_COUNT nome", "4: LINE_TOO_LONG", "5: WRONG_FIELD_COUNT nome", "6: b@b.co|B"},
		},
		"line of exactly the limit": {
			file:    "email;nome\r\nb@b.co;" + strings.Repeat("x", 57) + "\r\nc@b.co;\"" + strings.Repeat("x\n", 27) + "x\"\r\n",
			options: csvfile.Options{Limits: csvfile.Limits{LineBytes: 64}},
			want:    []string{"2: b@b.co|" + strings.Repeat("x", 57), "3-30: c@b.co|" + strings.Repeat("x\n", 27) + "x"},
		},
		"too many rows": {
			file:    "email\na@b.co\n\nb@b.co\nc@b.co\n",
			options: csvfile.Options{Limits: csvfile.Limits{Rows: 2}},
			want:    []string{"2: a@b.co", "4: b@b.co", "line 5: TOO_MANY_ROWS"},
		},
		"NUL in UTF-16": {
			file: utf16(unicode.LittleEndian, unicode.UseBOM, "email\na@b.co\nb\x00@b.co\n"),
			want: []string{"2: a@b.co", "line 3: BINARY_FILE"},
		},
		"Windows-1252 given for what looks like UTF-8": {
			file:    "email;nome\na@b.co;Ã©\n",
			options: csvfile.Options{Encoding: csvfile.Windows1252},
			want:    []string{"2: a@b.co|ÃƒÂ©"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for how, wrap := range map[string]func(io.Reader) io.Reader{
				"whole": func(r io.Reader) io.Reader { return r }, "byte by byte": iotest.OneByteReader, "EOF with data": iotest.DataErrReader,
			} {
				r, err := csvfile.Open(wrap(strings.NewReader(tt.file)), inspect(t, tt.file), tt.options)
				var got []string
				if err != nil {
					got = []string{ending(err)}
				} else {
					got = readAll(r)
				}
				if diff := cmp.Diff(tt.want, got); diff != "" {
					t.Errorf("%s: (-want +got)\n%s", how, diff)
				}
			}
		})
	}
}

func slice(n int, f func(int) string) []string {
	var s []string
	for i := range n {
		s = append(s, f(i))
	}
	return s
}

// The result does not depend on the window size: windows end within rows, in the middle of a character, of a
// CRLF or of a pair of quotes.
func TestReader_Windows(t *testing.T) {
	t.Parallel()
	const rows = 5_000
	var file strings.Builder
	file.WriteString("nome;e-mail;obs\r\n")
	for n := range rows {
		fmt.Fprintf(&file, "João %d;p%d@exemplo.com.br;\"diz \"\"olá\"\"%s\r\ne vai\"\r\nBia;b@b.co;\r\n", n, n, strings.Repeat("é", n%50))
	}
	for encoding, text := range map[csvfile.Encoding]string{
		csvfile.UTF8: file.String(), csvfile.Windows1252: windows1252(file.String()), csvfile.UTF16LE: utf16(unicode.LittleEndian, unicode.UseBOM, file.String()),
	} {
		for _, limit := range []int{0, 199, 256} {
			r, err := open(t, text, csvfile.Options{Limits: csvfile.Limits{LineBytes: limit}})
			if err != nil {
				t.Fatal(err)
			}
			if r.Encoding() != encoding || r.Delimiter() != ';' {
				t.Errorf("encoding %s, delimiter %q, want %s, ';'", r.Encoding(), r.Delimiter(), encoding)
			}
			got := readAll(r)
			for n := range rows {
				want := []string{
					fmt.Sprintf("%d-%d: João %d|p%d@exemplo.com.br|diz \"olá\"%s\ne vai", 2+3*n, 3+3*n, n, n, strings.Repeat("é", n%50)),
					fmt.Sprintf("%d: Bia|b@b.co|", 4+3*n),
				}
				if len(got) != 2*rows || got[2*n] != want[0] || got[2*n+1] != want[1] {
					t.Fatalf("%s, limit %d: %d rows; row %d is %q, want %q", encoding, limit, len(got), n, got[2*n:2*n+2], want)
				}
			}
		}
	}
}

// A window ends at each position within a row.
func TestReader_WindowEnds(t *testing.T) {
	t.Parallel()
	const rows = 100
	for _, row := range []string{"a@b.co;Zé\r\n", "\"a@b.co\";\"\"\"Zé\"\"\"\r\n", "a@b.co ; \"Zé\" \r"} {
		for shift := range len(row) + 1 {
			file := "email;nome\n" + strings.Repeat("x", shift) + "@b.co;\r\n" + strings.Repeat(row, rows)
			r, err := open(t, file, csvfile.Options{Limits: csvfile.Limits{LineBytes: 40}})
			if err != nil {
				t.Fatal(err)
			}
			got := readAll(r)
			if len(got) != rows+1 || strings.ReplaceAll(got[rows], `"`, "") != fmt.Sprintf("%d: a@b.co|Zé", rows+2) {
				t.Errorf("%q shifted by %d: %d rows, the last %q", row, shift, len(got), got[len(got)-1])
			}
		}
	}
}

// An error of the storage must not be taken for the end of the file.
func TestReader_FailingSource(t *testing.T) {
	t.Parallel()
	file := "email;nome\na@b.co;A\nb@b.co;B\n"
	broken := errors.New("connection reset")
	r, err := csvfile.Open(io.MultiReader(strings.NewReader(file[:25]), iotest.ErrReader(broken)), inspect(t, file), csvfile.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if row, err := r.Next(); err != nil || string(row.Field(0)) != "a@b.co" {
		t.Fatalf("first row: %v", err)
	}
	for range 2 {
		if _, err := r.Next(); !errors.Is(err, broken) {
			t.Errorf("Next = %v, want %v on every call", err, broken)
		}
	}
}

// A file that differs from the inspected one must not bring invalid UTF-8 to the database.
func TestReader_ChangedFile(t *testing.T) {
	t.Parallel()
	r, err := csvfile.Open(strings.NewReader("email\na@b.co\n\xe3@b.co\n"), inspect(t, "email\na@b.co\n"), csvfile.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"2: a@b.co", "line 3: INVALID_ENCODING"}, readAll(r)); diff != "" {
		t.Error(diff)
	}
}
