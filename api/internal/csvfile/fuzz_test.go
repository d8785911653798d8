package csvfile_test

import (
	"errors"
	"io"
	"strings"
	"testing"
	"testing/iotest"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/text/encoding/charmap"
	xunicode "golang.org/x/text/encoding/unicode"

	"email-gateway/api/internal/csvfile"
	"email-gateway/shared/email"
)

// FuzzReader checks properties of any file: reading ends, every line that is not blank belongs to exactly one row
// or error, rows contain exactly the text of their lines, and the division into reads does not matter. The file is
// compared with a simple second parser.
func FuzzReader(f *testing.F) {
	for _, seed := range []string{
		"email;nome\na@b.co;Zé\n",
		"\ufeff\"email\",\"nome\"\r\n\"a@b.co\",\"João \"\"Zé\"\" Silva\"\r\n",
		"sep=;\r\nemail;nome\r\na@b.co;\"x\r\ny\"\r\n;;\r\nb@b.co\r\n",
		"nome;email\n\"João;a@b.co\nMaria;b@b.co\n\"Ana\";\"c@b.co\"\n",
		"email|a|b\ra@b.co|\"x\" y|\"\"z\rb@b.co|1|2|3\r",
		"email\tnome\n\n\x1a",
		"=\"email\";nome\n=\"a@b.co\";\"=\"\"Zé\"\"\"\n=\"\";=\"x;=y\"\n",
		"nome;email;obs\n\"Ana;a@b.co;x\nBia;b@b.co;y\ntela 12\";c@b.co;z\n",
		"nome;email;obs\nx\";a@b.co;\"y\nx\";b@b.co;\"y\nx\";c@b.co;\"y\n",
		"email;nome\nx;\"" + strings.Repeat("a\n", 40) + "\nb;c\n",
		windows1252("e-mail;razão social\na@b.co;Açaí “Bom”\n"),
		utf16(xunicode.LittleEndian, xunicode.UseBOM, "email\tnome\r\na@b.co\t\"Zé\r\nBia\"\r\n"),
	} {
		for limit := range limits {
			f.Add([]byte(seed), uint8(limit))
		}
	}
	f.Fuzz(func(t *testing.T, file []byte, limit uint8) {
		lineBytes := limits[int(limit)%len(limits)]
		options := csvfile.Options{Limits: csvfile.Limits{LineBytes: lineBytes, Rows: 500, Columns: 20}}
		seen := inspect(t, string(file))
		r, err := csvfile.Open(strings.NewReader(string(file)), seen, options)
		again, errAgain := csvfile.Open(iotest.OneByteReader(strings.NewReader(string(file))), seen, options)
		if text(err) != text(errAgain) {
			t.Fatalf("Open = %v, byte by byte %v", err, errAgain)
		}
		if err != nil {
			if !errors.As(err, new(*csvfile.FileError)) {
				t.Fatalf("Open = %v, want a FileError", err)
			}
			return
		}
		if r.Delimiter() != again.Delimiter() {
			t.Fatalf("delimiter %q, byte by byte %q", r.Delimiter(), again.Delimiter())
		}
		lines := physicalLines(t, file, r.Encoding())
		follow(t, r, lines, lineBytes)
		size := len(strings.Join(lines, "\n"))
		if looked := r.Looked(); looked > 8*size {
			t.Errorf("%d bytes of a file of %d were looked at", looked, size)
		}

		r, err = csvfile.Open(strings.NewReader(string(file)), seen, options)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(readAll(r), readAll(again)); diff != "" {
			t.Errorf("(-whole +byte by byte)\n%s", diff)
		}
	})
}

// Line limits that result in windows of 64 bytes, 1 KiB and 256 KiB.
var limits = []int{16, 256, 64 << 10}

// follow compares the rows with the lines of the file.
func follow(t *testing.T, r *csvfile.Reader, lines []string, lineBytes int) {
	t.Helper()
	next := r.NextLine() // the first line that belongs to no row yet
	if next > len(lines)+1 {
		t.Fatalf("the header ends on line %d of %d", next-1, len(lines))
	}
	claim := func(first, last int) {
		if first < next || last < first || last > len(lines) {
			t.Fatalf("a row has lines %d to %d, but the next line is %d of %d", first, last, next, len(lines))
		}
		for ; next < first; next++ {
			if bare(lines[next-1], r.Delimiter()) != "" {
				t.Fatalf("line %d belongs to no row: %q", next, lines[next-1])
			}
		}
		next = last + 1
	}
	for {
		row, err := r.Next()
		var bad *csvfile.RowError
		var fault *csvfile.FileError
		switch {
		case err == nil:
			claim(row.Line, row.LastLine)
			checkCells(t, r, row, lines)
			checkRow(t, r, row, strings.Join(lines[row.Line-1:row.LastLine], "\n"), lineBytes)
		case errors.As(err, &bad):
			claim(bad.Line, bad.LastLine)
			if long := len(lines[bad.Line-1]) > lineBytes; long != (bad.Code == csvfile.CodeLineTooLong) {
				t.Fatalf("error %v for a line of %d bytes", bad, len(lines[bad.Line-1]))
			}
			if bad.Code == csvfile.CodeUnclosedQuote && (bad.Line != bad.LastLine || !strings.Contains(lines[bad.Line-1], `"`)) {
				t.Fatalf("error %v (to line %d) for line %q", bad, bad.LastLine, lines[bad.Line-1])
			}
		case errors.As(err, &fault):
			if fault.Line > len(lines) {
				t.Fatalf("error %v, but the file has %d lines", fault, len(lines))
			}
			claim(fault.Line, fault.Line)
			return
		case errors.Is(err, io.EOF):
			for ; next <= len(lines); next++ {
				if bare(lines[next-1], r.Delimiter()) != "" {
					t.Fatalf("line %d belongs to no row: %q", next, lines[next-1])
				}
			}
			return
		default:
			t.Fatal(err)
		}
	}
}

func checkRow(t *testing.T, r *csvfile.Reader, row csvfile.Row, raw string, lineBytes int) {
	t.Helper()
	var all strings.Builder
	columns := len(r.Header().Columns())
	for i := range columns {
		field := string(row.Field(i))
		if !utf8.ValidString(field) || strings.TrimSpace(field) != field || strings.ContainsAny(field, "\r\x00") {
			t.Fatalf("line %d: field %q", row.Line, field)
		}
		all.WriteString(field)
	}
	if row.Field(-1) != nil || row.Field(1000) != nil {
		t.Fatal("a field has text that the file cannot contain")
	}
	got, want := bare(all.String(), r.Delimiter()), bare(raw, r.Delimiter())
	if !strings.HasPrefix(want, got) || want != got && columns > 0 && !hasNameless(r) {
		t.Fatalf("line %d: fields %q of the text %q", row.Line, got, want)
	}
	if len(raw) > lineBytes+strings.Count(raw, "\n")+1 {
		t.Fatalf("line %d: a row of %d bytes", row.Line, len(raw))
	}
}

// checkCells looks for rows among the lines within the cells of a row.
func checkCells(t *testing.T, r *csvfile.Reader, row csvfile.Row, lines []string) {
	t.Helper()
	trim := func(text string) string {
		return strings.TrimFunc(text, func(r rune) bool { return email.IsInvisible(r) || r == 0x1a })
	}
	for n := row.Line + 1; n < row.LastLine; n++ {
		fields := strings.Split(lines[n-1], string(rune(r.Delimiter())))
		if strings.Contains(lines[n-1], `"`) || len(fields) <= r.Header().Email {
			continue
		}
		if address := trim(fields[r.Header().Email]); strings.Index(address, "@") > 0 && !strings.ContainsAny(address, " (") {
			t.Fatalf("line %d is a row, and text of the row in line %d: %q", n, row.Line, lines[n-1])
		}
	}
}

// hasNameless reports whether the header has unnamed columns after the last named one, whose text is ignored.
func hasNameless(r *csvfile.Reader) bool { return r.Physical() > len(r.Header().Columns()) }

// bare removes every character that may be CSV syntax from a text.
func bare(text string, delimiter byte) string {
	return strings.Map(func(r rune) rune {
		if email.IsInvisible(r) || r == '"' || r == '=' || r == rune(delimiter) || r == 0x1a {
			return -1
		}
		return r
	}, text)
}

// physicalLines returns the lines as an editor shows them, one more than there are line ends.
func physicalLines(t *testing.T, file []byte, encoding csvfile.Encoding) []string {
	t.Helper()
	var err error
	switch encoding {
	case csvfile.Windows1252:
		file, err = charmap.Windows1252.NewDecoder().Bytes(file)
	case csvfile.UTF16LE:
		file, err = xunicode.UTF16(xunicode.LittleEndian, xunicode.IgnoreBOM).NewDecoder().Bytes(file)
	case csvfile.UTF16BE:
		file, err = xunicode.UTF16(xunicode.BigEndian, xunicode.IgnoreBOM).NewDecoder().Bytes(file)
	}
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.NewReplacer("\r\n", "\n", "\r", "\n").Replace(string(file))
	return strings.Split(lines, "\n")
}
