package csvfile_test

import (
	"crypto/sha256"
	"errors"
	"strings"
	"testing"

	"golang.org/x/text/encoding/unicode"
	"pgregory.net/rapid"

	"email-gateway/api/internal/csvfile"
)

// The inspection does not depend on how the upload is divided into writes.
func TestInspector_Pieces(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		file := rapid.OneOf(
			rapid.String(),
			rapid.StringOf(rapid.SampledFrom([]rune("aé€😀\n\r;"))),
			rapid.Map(rapid.SliceOf(rapid.SampledFrom([]byte("a\n\r\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80\x00"))), func(b []byte) string { return string(b) }),
		).Draw(t, "file")
		whole := csvfile.NewInspector()
		if _, err := whole.Write([]byte(file)); err != nil {
			t.Fatal(err)
		}
		in := csvfile.NewInspector()
		for rest := file; rest != ""; {
			n := rapid.IntRange(1, len(rest)).Draw(t, "piece")
			if written, err := in.Write([]byte(rest[:n])); written != n || err != nil {
				t.Fatalf("Write = %d, %v", written, err)
			}
			in.Inspection() // reading the state in between has no effect
			rest = rest[n:]
		}
		got, want := in.Inspection(), whole.Inspection()
		if got.Size != int64(len(file)) || got.SHA256 != sha256.Sum256([]byte(file)) || got.SHA256 != want.SHA256 {
			t.Errorf("size %d, SHA-256 %x", got.Size, got.SHA256)
		}
		for _, given := range []csvfile.Encoding{csvfile.Detect, csvfile.UTF8, csvfile.Windows1252, csvfile.UTF16LE} {
			gotEncoding, gotErr := got.Encoding(given)
			wantEncoding, wantErr := want.Encoding(given)
			if gotEncoding != wantEncoding || text(gotErr) != text(wantErr) {
				t.Errorf("Encoding(%q) = %q, %v in pieces, %q, %v of the whole", given, gotEncoding, gotErr, wantEncoding, wantErr)
			}
		}
	})
}

func text(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

func TestInspection_Encoding(t *testing.T) {
	t.Parallel()
	const excel = "email;nome\r\na@b.co;João\r\n"
	wide := utf16(unicode.LittleEndian, unicode.UseBOM, excel)
	farther := strings.Repeat("a@b.co;Joao\n", 10_000)
	for name, tt := range map[string]struct {
		file  string
		given csvfile.Encoding
		want  csvfile.Encoding
		fault string // of the error: its code, line and a part of its message
	}{
		"ASCII":                      {file: "email\na@b.co\n", want: csvfile.UTF8},
		"UTF-8":                      {file: excel, want: csvfile.UTF8},
		"UTF-8 with mark":            {file: "\ufeff" + excel, want: csvfile.UTF8},
		"Windows-1252":               {file: windows1252(excel), want: csvfile.Windows1252},
		"Windows-1252 late":          {file: farther + windows1252("João;1"), want: csvfile.Windows1252},
		"UTF-16LE":                   {file: wide, want: csvfile.UTF16LE},
		"UTF-16BE":                   {file: utf16(unicode.BigEndian, unicode.UseBOM, excel), want: csvfile.UTF16BE},
		"UTF-16BE without mark":      {file: utf16(unicode.BigEndian, unicode.IgnoreBOM, excel), want: csvfile.UTF16BE},
		"UTF-16LE given, no mark":    {file: utf16(unicode.LittleEndian, unicode.IgnoreBOM, "日本語;メール"), given: csvfile.UTF16LE, want: csvfile.UTF16LE},
		"Windows-1252 given, UTF-8":  {file: excel, given: csvfile.Windows1252, want: csvfile.Windows1252},
		"UTF-8 given, UTF-8":         {file: excel, given: csvfile.UTF8, want: csvfile.UTF8},
		"UTF-8 mark, Windows-1252":   {file: "\ufeff" + excel + "a@b.co;Jo\xe3o\n", fault: "line 3: INVALID_ENCODING|has a UTF-8 byte order mark, but this line is not UTF-8"},
		"the same, 1252 given":       {file: "\ufeff" + excel + "a@b.co;Jo\xe3o\n", given: csvfile.Windows1252, fault: "line 3: INVALID_ENCODING|correct the line"},
		"CESU-8":                     {file: "email;nome\na@b.co;\xed\xa0\xbd\xed\xb8\x80\n", fault: "line 2: INVALID_ENCODING|CESU-8"},
		"í, NBSP and a quote":        {file: "email;nome\na@b.co;da\xed\xa0\x93\n", want: csvfile.Windows1252},
		"Windows-1252 and CP850":     {file: "email;nome\n" + strings.Repeat("a@b.co;Jo\xe3o\n", 50) + strings.Repeat("a@b.co;Jo\xc6o\n", 20), fault: "line 52: INVALID_ENCODING|symbols inside words"},
		"DOS end of file":            {file: "email\na@b.co\n\x1a", want: csvfile.UTF8},
		"empty":                      {file: "", fault: "EMPTY_FILE|is empty"},
		"UTF-8 given, Windows-1252":  {file: windows1252(excel), given: csvfile.UTF8, fault: "line 2: INVALID_ENCODING|leave the encoding out"},
		"UTF-8 given, CR line ends":  {file: "a\rb\r\xe3\r", given: csvfile.UTF8, fault: "line 3: INVALID_ENCODING|not UTF-8"},
		"UTF-8 given, cut character": {file: "a\nb\n\xc3", given: csvfile.UTF8, fault: "line 3: INVALID_ENCODING|not UTF-8"},
		"UTF-8 given, UTF-16":        {file: wide, given: csvfile.UTF8, fault: "INVALID_ENCODING|mark of utf-16le"},
		"1252 given, UTF-8 mark":     {file: "\ufeff" + excel, given: csvfile.Windows1252, fault: "INVALID_ENCODING|mark of utf-8"},
		"UTF-8 mark, then damage":    {file: "\ufeffemail\nJo\xe3o\n", fault: "line 2: INVALID_ENCODING|CSV UTF-8"},
		"UTF-8 with a damaged line":  {file: "nome\nJoão\nConceição\n" + farther + "Jo\xe3o\n", fault: "line 10004: INVALID_ENCODING|this line is not UTF-8"},
		"UTF-16 of odd length":       {file: wide[:len(wide)-1], fault: "INVALID_ENCODING|ends within a character"},
		"Excel workbook":             {file: "PK\x03\x04\x14\x00\x06\x00[Content_Types].xml", fault: "BINARY_FILE|Excel workbook (.xlsx)"},
		"Excel workbook as 1252":     {file: "PK\x03\x04\x14\x00\x06\x00xl/workbook.xml", given: csvfile.Windows1252, fault: "BINARY_FILE|CSV UTF-8"},
		"LibreOffice":                {file: "PK\x03\x04mimetypeapplication/vnd.oasis.opendocument.spreadsheet", fault: "BINARY_FILE|LibreOffice"},
		"ZIP":                        {file: "PK\x03\x04lista.csv", fault: "BINARY_FILE|unpack"},
		"old Excel workbook":         {file: "\xD0\xCF\x11\xE0\xA1\xB1\x1A\xE1\x00\x00", fault: "BINARY_FILE|Excel workbook (.xls)"},
		"PDF":                        {file: "%PDF-1.7\n", fault: "BINARY_FILE|PDF"},
		"gzip":                       {file: "\x1f\x8b\x08\x00", fault: "BINARY_FILE|gzip"},
		"RTF":                        {file: `{\rtf1\ansi`, fault: "BINARY_FILE|RTF"},
		"HTML named .xls":            {file: "\ufeff\r\n <HTML><table>", fault: "BINARY_FILE|web page"},
		"NUL late in the file":       {file: farther + "\x00", fault: "line 10001: BINARY_FILE|NUL"},
		"NUL at the end of a field":  {file: "email;nome\r\na@b.co;Ana\x00\x00\r\n" + excel + excel, fault: "line 2: BINARY_FILE|replace"},
		"NUL, cp850 given":           {file: excel + excel + excel + "\x00", given: csvfile.CP850, fault: "line 7: BINARY_FILE|replace"},
		"fields filled with NUL":     {file: "email;nome\n" + strings.Repeat("a@b.co"+strings.Repeat("\x00", 34)+";Ana"+strings.Repeat("\x00", 57)+"\n", 10), fault: "line 2: BINARY_FILE|replace"},
		"NUL and other controls":     {file: "email;nome\n" + strings.Repeat("a@b.co\x00\x00\x00\x01\x00;Ana\n", 10), fault: "BINARY_FILE|not text"},
		"only NUL":                   {file: strings.Repeat("\x00", 1000), fault: "BINARY_FILE|not text"},
		"full of NUL":                {file: "email;nome\n" + strings.Repeat("a\x00@b\x00;\n", 10), fault: "BINARY_FILE|not text"},
		"controls":                   {file: "\x89PNG\r\n\x1a\n\x01\x02\x03", fault: "BINARY_FILE|not text"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, err := inspect(t, tt.file).Encoding(tt.given)
			if got != tt.want {
				t.Errorf("Encoding = %q, want %q", got, tt.want)
			}
			code, message, _ := strings.Cut(tt.fault, "|")
			if tt.fault == "" {
				if err != nil {
					t.Errorf("Encoding: %v", err)
				}
				return
			}
			if err == nil || ending(err) != code || !strings.Contains(err.Error(), message) {
				t.Errorf("Encoding: %v, want %s with %q", err, code, message)
			}
			if _, err := open(t, tt.file, csvfile.Options{Encoding: tt.given}); err == nil || ending(err) != code {
				t.Errorf("Open: %v, want %s", err, code)
			}
		})
	}
}

func TestParse(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]csvfile.Encoding{
		"": csvfile.Detect, "UTF-8": csvfile.UTF8, "utf8": csvfile.UTF8, "Windows-1252": csvfile.Windows1252, "latin1": csvfile.Windows1252,
		"ISO-8859-1": csvfile.Windows1252, "CP850": csvfile.CP850, "ibm850": csvfile.CP850, "Macintosh": csvfile.Macintosh, "mac-roman": csvfile.Macintosh, "iso-8859-15": csvfile.ISO8859x15, "Latin 9": csvfile.ISO8859x15, "utf_16_le": csvfile.UTF16LE, "UTF-16BE": csvfile.UTF16BE,
	} {
		if got, err := csvfile.ParseEncoding(name); got != want || err != nil {
			t.Errorf("ParseEncoding(%q) = %q, %v, want %q", name, got, err, want)
		}
	}
	for name, want := range map[string]byte{"": 0, ";": ';', ",": ',', "|": '|', "\t": '\t', "tab": '\t', `\t`: '\t'} {
		if got, err := csvfile.ParseDelimiter(name); got != want || err != nil {
			t.Errorf("ParseDelimiter(%q) = %q, %v, want %q", name, got, err, want)
		}
	}
	if _, err := csvfile.ParseEncoding("ebcdic"); err == nil || !strings.Contains(err.Error(), "ebcdic") {
		t.Errorf("ParseEncoding(ebcdic): %v", err)
	}
	if _, err := csvfile.ParseDelimiter(":"); err == nil {
		t.Error("ParseDelimiter(:) is accepted")
	}
	_, err := open(t, "email\n", csvfile.Options{Delimiter: ':'})
	if err == nil || errors.As(err, new(*csvfile.FileError)) {
		t.Errorf("Open with delimiter ':' = %v, want an error that is not the file's", err)
	}
}
