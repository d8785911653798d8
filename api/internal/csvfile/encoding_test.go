package csvfile_test

import (
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"testing/iotest"

	"golang.org/x/text/encoding/charmap"
	"golang.org/x/text/encoding/unicode"
	"pgregory.net/rapid"

	"email-gateway/api/internal/csvfile"
)

func encoded(table *charmap.Charmap, text string) string {
	out, err := table.NewEncoder().String(text)
	if err != nil {
		panic(err)
	}
	return out
}

// The encoding is decided for the whole file, whatever its first 64 KiB contain and however it is divided: text
// in two encodings is rejected, and the reported line is one of the minority.
func TestInspection_MixedEncodings(t *testing.T) {
	t.Parallel()
	const header = "nome;email\n"
	ascii := strings.Repeat("Ana Maria da Silva;ana@exemplo.com.br\n", 2_000) // 76 KB
	utf8Row, ansiRow := "João;joao@exemplo.com.br\n", windows1252("Zé;ze@exemplo.com.br\n")
	for name, tt := range map[string]struct{ file, want string }{
		"ASCII, UTF-8, one line of Windows-1252": {header + ascii + strings.Repeat(utf8Row, 1_000) + ansiRow, "line 3002: INVALID_ENCODING"},
		"ASCII, Windows-1252, one line of UTF-8": {header + ascii + strings.Repeat(ansiRow, 1_000) + utf8Row, "line 3002: INVALID_ENCODING"},
		"alternating":                            {header + strings.Repeat(utf8Row+ansiRow, 500), "line 3: INVALID_ENCODING"},
		"alternating, the other way":             {header + strings.Repeat(ansiRow+utf8Row, 500), "line 2: INVALID_ENCODING"},
		"one line of Windows-1252, UTF-8":        {header + ansiRow + strings.Repeat(utf8Row, 1_000), "line 2: INVALID_ENCODING"},
		"one line of UTF-8, Windows-1252":        {header + utf8Row + strings.Repeat(ansiRow, 1_000), "line 2: INVALID_ENCODING"},
		"both in one line":                       {header + "João;" + windows1252("Zé") + "@b.co\n", "line 2: INVALID_ENCODING"},
		"capitals":                               {header + strings.Repeat(windows1252("CONCEIÇÃO;a@b.co\n"), 100) + "CONCEIÇÃO;a@b.co\n", "line 102: INVALID_ENCODING"},
		"CRLF":                                   {strings.ReplaceAll(header+strings.Repeat(utf8Row, 5)+ansiRow, "\n", "\r\n"), "line 7: INVALID_ENCODING"},
		"CR":                                     {strings.ReplaceAll(header+strings.Repeat(utf8Row, 5)+ansiRow, "\n", "\r"), "line 7: INVALID_ENCODING"},
		"line ends in quotes":                    {header + "\"Jo\r\né\n\r\";" + utf8Row + ansiRow, "line 6: INVALID_ENCODING"},
		"a cut character at the end":             {header + strings.Repeat(utf8Row, 3) + "Jo\xc3", "line 5: INVALID_ENCODING"},
		"a cut character of three bytes":         {header + strings.Repeat(utf8Row, 3) + "Jo\xe2\x82", "line 5: INVALID_ENCODING"},
		"a surrogate in UTF-8":                   {header + strings.Repeat(utf8Row, 3) + "\xed\xa0\xbd;a@b.co\n", "line 5: INVALID_ENCODING"},
		"UTF-8 with its mark, Windows-1252":      {"\ufeff" + header + ascii + ansiRow, "line 2002: INVALID_ENCODING"},
		"UTF-16LE behind UTF-8":                  {header + utf8Row + utf16(unicode.LittleEndian, unicode.IgnoreBOM, utf8Row), "BINARY_FILE"},
		"a byte that Windows-1252 has not":       {header + ansiRow + "Jo\x8do;a@b.co\n", "line 3: INVALID_ENCODING"},
		"MS-DOS without encoding":                {header + encoded(charmap.CodePage850, "João;a@b.co\n"), "line 2: INVALID_ENCODING"},
		"MS-DOS without encoding, more":          {header + encoded(charmap.CodePage850, "Ana;a@b.co\nFrançois Sérgio;b@b.co\n"), "line 3: INVALID_ENCODING"},
		"MS-DOS without encoding, two letters":   {header + encoded(charmap.CodePage850, "Conceição;a@b.co\n"), "line 2: INVALID_ENCODING"},
		"MS-DOS without encoding, last letter":   {header + encoded(charmap.CodePage850, "José;a@b.co\nAndré;b@b.co\n"), "line 2: INVALID_ENCODING"},
		"Macintosh without encoding, last":       {header + encoded(charmap.Macintosh, "José;a@b.co\n"), "line 2: INVALID_ENCODING"},
		"Macintosh without encoding":             {header + encoded(charmap.Macintosh, "João;a@b.co\n"), "line 2: INVALID_ENCODING"},
		"a euro of ISO-8859-15":                  {header + strings.Repeat(ansiRow, 50) + encoded(charmap.ISO8859_15, "Ana;€ 49,90\nAna;49,90€\n"), "line 52: INVALID_ENCODING"},
		"half a pair at the end of UTF-16":       {utf16(unicode.LittleEndian, unicode.UseBOM, header+"a\n") + "\x3d\xd8", "line 3: INVALID_ENCODING"},
		"second half alone in UTF-16":            {utf16(unicode.BigEndian, unicode.UseBOM, strings.ReplaceAll(header, "\n", "\r\n")+ascii) + "\xde\x00", "line 2002: INVALID_ENCODING"},
		"half a pair in UTF-16 without mark":     {utf16(unicode.LittleEndian, unicode.IgnoreBOM, header+ascii+"a") + "\x3d\xd8\x41\x00", "line 2002: INVALID_ENCODING"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for how, wrap := range map[string]func(io.Reader) io.Reader{
				"whole": func(r io.Reader) io.Reader { return r }, "byte by byte": iotest.OneByteReader, "half": iotest.HalfReader,
			} {
				in := csvfile.NewInspector()
				if _, err := io.Copy(in, struct{ io.Reader }{wrap(strings.NewReader(tt.file))}); err != nil {
					t.Fatal(err)
				}
				got, err := in.Inspection().Encoding(csvfile.Detect)
				if err == nil || ending(err) != tt.want {
					t.Errorf("%s: %q, %v, want %s", how, got, err, tt.want)
				}
			}
		})
	}
}

// Windows-1252 text contains bytes that could be UTF-8, and signs of every kind.
func TestInspection_Windows1252(t *testing.T) {
	t.Parallel()
	var every []byte
	for b := 0x80; b <= 0xff; b++ {
		if b != 0x81 && b != 0x8d && b != 0x8f && b != 0x90 && b != 0x9d && b != 0xa4 {
			every = append(every, 'x', byte(b), ' ')
		}
	}
	for name, file := range map[string]string{
		"Ã and a curly quote":    windows1252("nome;email\n" + strings.Repeat("João Conceição;a@b.co\n", 10) + "“IRMÔ;b@b.co\n"),
		"É and an ellipsis":      windows1252("nome;email\n" + strings.Repeat("São Luís;a@b.co\n", 20) + "CAFÉ…;b@b.co\n"),
		"Ô and a curly quote":    windows1252("nome;email\n“METRÔ”;a@b.co\n"),
		"Ô and an ellipsis":      windows1252("nome;email\nMETRÔ…;a@b.co\n"),
		"É alone":                windows1252("nome;email\nÉ…;a@b.co\n"),
		"é and two signs":        windows1252("nome;email\n“o café…”;a@b.co\n"),
		"é and nothing else":     windows1252("nome;email\no café…”;a@b.co\n"),
		"Ã beside Ô":             windows1252("nome;email\nMETRÔ…;a@b.co\nIRMÃ”;b@b.co\n"),
		"signs of typography":    windows1252("nome;email\n“Zé” – D’Ávila • 1ª €5 ½ l·l;a@b.co\nNº 3 – segunda–feira;b@b.co\n"),
		"every byte that it has": windows1252("nome;email\n"+strings.Repeat("João Conceição;a@b.co\n", 10)) + string(every) + ";a@b.co\n",
		"one letter at the end":  "email;nome\na@b.co;Jos\xe9",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if got, err := inspect(t, file).Encoding(csvfile.Detect); got != csvfile.Windows1252 || err != nil {
				t.Errorf("%q, %v, want windows-1252", got, err)
			}
		})
	}
}

// Valid UTF-8 stays UTF-8 in every script.
func TestInspection_UTF8(t *testing.T) {
	t.Parallel()
	for _, name := range []string{
		"João", "IRMÔ", "É", "METRÔ", "Łódź", "BUCUREȘ", "ȘTEFAN-Ș", "Иван Петров", "TВ Иван", "Αθήνα", "محمد", "王小明", "iPhone酔 王", "A–B €5", "Zoë…", "DAĞ", "😀",
	} {
		if got, err := inspect(t, "nome;email\n"+name+";a@b.co\n").Encoding(csvfile.Detect); got != csvfile.UTF8 || err != nil {
			t.Errorf("%s: %q, %v", name, got, err)
		}
	}
}

// A given encoding is validated too.
func TestInspection_GivenEncoding(t *testing.T) {
	t.Parallel()
	const text = "Razão Social;E-mail\r\nJosé & João “Ítalo” Conceição;a@b.co\r\n"
	plain := strings.NewReplacer("“", `"`, "”", `"`).Replace(text)
	dos, mac := encoded(charmap.CodePage850, plain), encoded(charmap.Macintosh, text)
	wide := utf16(unicode.LittleEndian, unicode.IgnoreBOM, text)
	for name, tt := range map[string]struct {
		file  string
		given csvfile.Encoding
		want  string // the row, or the error
	}{
		"cp850":                          {dos, csvfile.CP850, `2: José & João "Ítalo" Conceição|a@b.co`},
		"macintosh":                      {mac, csvfile.Macintosh, "2: José & João “Ítalo” Conceição|a@b.co"},
		"macintosh with CR":              {strings.ReplaceAll(mac, "\r\n", "\r"), csvfile.Macintosh, "2: José & João “Ítalo” Conceição|a@b.co"},
		"windows-1252 of UTF-8":          {text, csvfile.Windows1252, "line 2: INVALID_ENCODING"}, // Í and ” have bytes that it does not define
		"windows-1252 of MS-DOS":         {encoded(charmap.CodePage850, "email;nome\na@b.co;JOSÉ\n"), csvfile.Windows1252, "line 2: INVALID_ENCODING"},
		"iso-8859-15":                    {encoded(charmap.ISO8859_15, "email;nome\na@b.co;José Œuvre, € 5\n"), csvfile.ISO8859x15, "2: a@b.co|José Œuvre, € 5"},
		"iso-8859-15 of windows-1252":    {windows1252(text), csvfile.ISO8859x15, "line 2: INVALID_ENCODING"}, // “ is a control character
		"windows-1252 of iso-8859-15":    {encoded(charmap.ISO8859_15, "email;nome\na@b.co;€ 5\n"), csvfile.Windows1252, "2: a@b.co|¤ 5"},
		"utf-8 of windows-1252":          {windows1252(text), csvfile.UTF8, "line 1: INVALID_ENCODING"},
		"utf-16le of UTF-8":              {text, csvfile.UTF16LE, "INVALID_ENCODING"},
		"utf-16be of UTF-16LE":           {wide, csvfile.UTF16BE, "INVALID_ENCODING"},
		"utf-8 of UTF-16LE":              {wide, csvfile.UTF8, "INVALID_ENCODING"},
		"cp850 of UTF-16LE":              {wide, csvfile.CP850, "INVALID_ENCODING"},
		"utf-16le of UTF-16BE, marked":   {utf16(unicode.BigEndian, unicode.UseBOM, text), csvfile.UTF16LE, "INVALID_ENCODING"},
		"utf-16le with half a pair":      {wide + "\x00\xdc", csvfile.UTF16LE, "line 3: INVALID_ENCODING"},
		"utf-16le that is cut":           {wide + "a", csvfile.UTF16LE, "INVALID_ENCODING"},
		"cp850 of UTF-8 with its mark":   {"\ufeff" + text, csvfile.CP850, "INVALID_ENCODING"},
		"utf-16be without mark":          {utf16(unicode.BigEndian, unicode.IgnoreBOM, text), csvfile.UTF16BE, "2: José & João “Ítalo” Conceição|a@b.co"},
		"windows-1252 of signs in words": {"email;nome\na@b.co;x\xa3y\n", csvfile.Windows1252, "2: a@b.co|x£y"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r, err := open(t, tt.file, csvfile.Options{Encoding: tt.given})
			var got string
			if err != nil {
				got = ending(err)
			} else {
				got = strings.Join(readAll(r), "\n")
			}
			if got != tt.want {
				t.Errorf("%s, want %s (%v)", got, tt.want, err)
			}
		})
	}
}

// A file of lines in any encodings is either read without wrong characters, or rejected with a line in one of the
// encodings.
func TestInspection_AnyMix(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		kinds := rapid.SliceOfN(rapid.IntRange(0, 2), 1, 40).Draw(t, "kinds") // ASCII, UTF-8, Windows-1252
		pad := strings.Repeat("x", rapid.IntRange(0, 9).Draw(t, "pad"))
		end := rapid.SampledFrom([]string{"\n", "\r\n", "\r"}).Draw(t, "end")
		file, counts := "email;nome"+end, [3]int{}
		for n, kind := range kinds {
			row := fmt.Sprintf("p%d@b.co;%sJosé da Conceição", n, pad) + end
			switch kind {
			case 0:
				row = strings.NewReplacer("é", "e", "ç", "c", "ã", "a").Replace(row)
			case 2:
				row = windows1252(row)
			}
			counts[kind]++
			file += strings.Repeat(row, rapid.SampledFrom([]int{1, 1, 700}).Draw(t, "times"))
		}
		in := csvfile.NewInspector()
		for rest := file; rest != ""; {
			n := min(len(rest), rapid.SampledFrom([]int{1 << 20, 32 << 10, 32<<10 - 1, 4093}).Draw(t, "piece"))
			if _, err := io.WriteString(in, rest[:n]); err != nil {
				t.Fatal(err)
			}
			rest = rest[n:]
		}
		seen := in.Inspection()
		if _, err := seen.Encoding(csvfile.Detect); (err != nil) != (counts[1] > 0 && counts[2] > 0) {
			t.Fatalf("Encoding: %v of %v lines", err, counts)
		}
		r, err := csvfile.Open(strings.NewReader(file), seen, csvfile.Options{})
		var fault *csvfile.FileError
		if errors.As(err, &fault) {
			lines := strings.Split(strings.NewReplacer("\r\n", "\n", "\r", "\n").Replace(file), "\n")
			if fault.Code != csvfile.CodeInvalidEncoding || fault.Line < 2 || !strings.ContainsFunc(lines[fault.Line-1], func(r rune) bool { return r >= 0x80 }) {
				t.Fatalf("%v", fault)
			}
			return
		}
		for _, row := range readAll(r) {
			if !strings.Contains(row, "José da Conceição") && !strings.Contains(row, "Jose da Conceicao") {
				t.Fatalf("row %q", row)
			}
		}
	})
}
