package csvfile

import (
	"bytes"
	"fmt"
	"io"
	"strings"

	"golang.org/x/text/encoding/charmap"
	"golang.org/x/text/encoding/unicode"
	"golang.org/x/text/transform"
)

// Encoding is a character encoding.
type Encoding string

// The supported encodings. With Detect, Inspection.Encoding decides; it never chooses CP850,
// ISO8859x15 or Macintosh, which must be given by the uploader.
const (
	Detect      Encoding = ""
	UTF8        Encoding = "utf-8"
	UTF16LE     Encoding = "utf-16le"
	UTF16BE     Encoding = "utf-16be"
	Windows1252 Encoding = "windows-1252"
	CP850       Encoding = "cp850"       // Excel's "CSV (MS-DOS)"
	ISO8859x15  Encoding = "iso-8859-15" // ISO-8859-1 with the euro sign: exports of SAP, Oracle and Linux
	Macintosh   Encoding = "macintosh"   // Excel's "CSV (Macintosh)"
)

// Encodings returns the names that an uploader may give, for messages and completion.
func Encodings() []string {
	return []string{string(UTF8), string(Windows1252), string(UTF16LE), string(UTF16BE), string(CP850), string(ISO8859x15), string(Macintosh)}
}

// ParseEncoding parses the name of an encoding in its usual spellings; an empty name is Detect.
// ISO-8859-1 is read as its superset Windows-1252: files do not contain C1 control characters, but
// often contain curly quotes.
func ParseEncoding(name string) (Encoding, error) {
	switch strings.NewReplacer("-", "", "_", "", " ", "").Replace(strings.ToLower(name)) {
	case "":
		return Detect, nil
	case "utf8", "utf8bom", "utf8sig":
		return UTF8, nil
	case "utf16le":
		return UTF16LE, nil
	case "utf16be":
		return UTF16BE, nil
	case "windows1252", "cp1252", "win1252", "ansi", "latin1", "iso88591":
		return Windows1252, nil
	case "cp850", "ibm850", "dos", "msdos", "oem850":
		return CP850, nil
	case "iso885915", "latin9":
		return ISO8859x15, nil
	case "macintosh", "mac", "macroman", "xmacroman":
		return Macintosh, nil
	}
	return Detect, fmt.Errorf("%.40q must be one of %s", name, strings.Join(Encodings(), ", "))
}

func (e Encoding) wide() bool { return e == UTF16LE || e == UTF16BE }

// decode converts r to UTF-8. UTF-8 itself is passed through and validated row by row. A byte order
// mark is kept. Undefined bytes are rejected by Inspection.Encoding before the file is read.
func (e Encoding) decode(r io.Reader) (io.Reader, error) {
	switch e {
	case UTF8:
		return r, nil
	case UTF16LE:
		return transform.NewReader(r, unicode.UTF16(unicode.LittleEndian, unicode.IgnoreBOM).NewDecoder()), nil
	case UTF16BE:
		return transform.NewReader(r, unicode.UTF16(unicode.BigEndian, unicode.IgnoreBOM).NewDecoder()), nil
	case Windows1252:
		return transform.NewReader(r, charmap.Windows1252.NewDecoder()), nil
	case CP850:
		return transform.NewReader(r, charmap.CodePage850.NewDecoder()), nil
	case ISO8859x15:
		return transform.NewReader(r, charmap.ISO8859_15.NewDecoder()), nil
	case Macintosh:
		return transform.NewReader(r, charmap.Macintosh.NewDecoder()), nil
	}
	return nil, fmt.Errorf("no decoder for encoding %q", string(e))
}

var utf8Mark = []byte("\xEF\xBB\xBF")

// markOf returns the encoding of a byte order mark at the beginning of a file.
func markOf(sample []byte) Encoding {
	switch {
	case bytes.HasPrefix(sample, utf8Mark):
		return UTF8
	case bytes.HasPrefix(sample, []byte("\xFF\xFE")):
		return UTF16LE
	case bytes.HasPrefix(sample, []byte("\xFE\xFF")):
		return UTF16BE
	}
	return Detect
}

// unmarkedWide recognizes UTF-16 without a byte order mark: in Latin text every other byte is NUL, and
// no other byte is.
func unmarkedWide(sample []byte) Encoding {
	nuls := nulsIn(sample)
	enough := len(sample)/2*9/10 + 1
	switch {
	case nuls[0] == 0 && nuls[1] >= enough:
		return UTF16LE
	case nuls[1] == 0 && nuls[0] >= enough:
		return UTF16BE
	}
	return Detect
}

// nulsIn counts the NULs at even and at odd positions.
func nulsIn(sample []byte) (nuls [2]int) {
	for i, b := range sample {
		if b == 0 {
			nuls[i%2]++
		}
	}
	return nuls
}
