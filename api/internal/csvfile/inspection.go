package csvfile

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"strings"
)

// Inspection is the result of an Inspector.
type Inspection struct {
	Size   int64 // bytes
	SHA256 [sha256.Size]byte

	sample        []byte // the beginning of the file
	stats         encodingStats
	loneSurrogate map[Encoding]int // for each possible byte order: line of the first lone surrogate, 0 = none
}

// Encoding decides the encoding of the file. given is the uploader's choice, or Detect. A byte order mark decides;
// without one, valid UTF-8 is UTF-8, a file in which every other byte is NUL is UTF-16, and everything else is
// Windows-1252, as saved by the Portuguese Excel, unless it has the byte of its sign ¤. The whole file must be valid in
// the encoding. Its error is a *FileError: EMPTY_FILE, BINARY_FILE or INVALID_ENCODING.
func (i Inspection) Encoding(given Encoding) (Encoding, error) {
	if i.Size == 0 {
		return "", &FileError{Code: CodeEmptyFile, Message: "the file is empty"}
	}
	if kind := detectOtherFormat(i.sample); kind != "" {
		return "", &FileError{Code: CodeBinaryFile, Message: kind}
	}
	marked, wide := markOf(i.sample), unmarkedWide(i.sample)
	switch {
	case marked == UTF8 && i.stats.malformed.count > 0:
		return "", invalid(i.stats.malformed.line, "the file has a UTF-8 byte order mark, but this line is not UTF-8: correct the line, or save the file again as CSV UTF-8")
	case given != Detect && marked != Detect && given != marked:
		return "", invalid(0, "the file begins with the byte order mark of %s, but the encoding %s was given: leave the encoding out", marked, given)
	case given != Detect && wide != Detect && given != wide:
		return "", invalid(0, "the file is %s, but the encoding %s was given: leave the encoding out", wide, given)
	case given == Detect && marked != Detect:
		given = marked
	case given == Detect && wide != Detect:
		given = wide
	}
	if given.wide() {
		if err := i.holdsWide(given); err != nil {
			return "", err
		}
		return given, nil
	}
	if manyControls(i.sample) {
		return "", &FileError{Code: CodeBinaryFile, Message: "the file is not text: save it as CSV and upload that"}
	}
	if i.stats.nul > 0 {
		return "", hasNUL(i.stats.nul)
	}
	switch e := &i.stats; {
	case given == Detect:
		return i.decide()
	case given == UTF8 && e.malformed.count > 0:
		return "", invalid(e.malformed.line, "this line is not UTF-8: save the file again as CSV UTF-8, leave the encoding out, or give the right one (%s)", otherEncodings)
	case given == Windows1252 && e.undefined.count > 0:
		return "", invalid(e.undefined.line, "this line has a byte that %s does not define: give the right encoding (%s)", Windows1252, otherEncodings)
	case given == ISO8859x15 && e.controls.count > 0:
		return "", invalid(e.controls.line, "this line has a byte for which %s has no visible character: give the right encoding (%s)", ISO8859x15, otherEncodings)
	}
	return given, nil // CP850 and Macintosh define every byte
}

// otherEncodings lists the usual encodings of files that are neither UTF-8 nor Windows-1252.
const otherEncodings = "windows-1252, or cp850 if it was saved as CSV (MS-DOS), macintosh if as CSV (Macintosh), iso-8859-15 of some SAP and Linux systems"

// holdsWide checks a file for errors in UTF-16.
func (i Inspection) holdsWide(e Encoding) error {
	nuls := nulsIn(i.sample)
	line, possible := i.loneSurrogate[e]
	switch {
	case i.Size%2 != 0:
		return invalid(0, "the file is %s, but ends within a character: it is truncated or damaged", e)
	case !possible, markOf(i.sample) == Detect && (e == UTF16LE && nuls[0] > nuls[1] || e == UTF16BE && nuls[1] > nuls[0]):
		return invalid(0, "the file is not %s: leave the encoding out, or give the right one", e)
	case line > 0:
		return invalid(line, "this line has half of a character (an unpaired UTF-16 surrogate): correct it, or save the file again as CSV UTF-8")
	}
	return nil
}

// decide chooses between UTF-8 and Windows-1252. A file with text in both is rejected: one kind of lines
// would be garbled (JoÃ£o) or contain replacement characters.
func (i Inspection) decide() (Encoding, error) {
	e := i.stats
	inUTF8 := e.wellFormed
	if e.coincidence.count*coincidenceShare > e.malformed.count {
		inUTF8.count += e.coincidence.count
		if inUTF8.line == 0 || e.coincidence.line < inUTF8.line {
			inUTF8.line = e.coincidence.line
		}
	}
	switch {
	case e.malformed.count == 0 && e.wellFormed.count == 0 && e.implausibleUTF8.count > 0:
		return Windows1252, nil // its bytes are UTF-8 by coincidence
	case e.malformed.count == 0:
		return UTF8, nil
	case inUTF8.count >= e.malformed.count:
		return "", invalid(e.malformed.line, "the file has lines in UTF-8 (the first is line %d), but this line is not UTF-8: correct it, or give the file's encoding (%s)",
			inUTF8.line, otherEncodings)
	case inUTF8.count > 0:
		return "", invalid(inUTF8.line, "this line is UTF-8, but other lines are not (the first is line %d): correct it, or give the file's encoding (%s)",
			e.malformed.line, otherEncodings)
	case e.surrogates.count > 0:
		return "", invalid(e.surrogates.line, "this line has a character that was written as two surrogates of UTF-16 (CESU-8), which is not UTF-8: save the file again as CSV UTF-8, or give its encoding (%s)", otherEncodings)
	case e.undefined.count > 0:
		return "", invalid(e.undefined.line, "this line is neither UTF-8 nor %s: give the file's encoding (%s)", Windows1252, otherEncodings)
	case e.unlikely.count*unlikelyShare > e.likely.count:
		return "", invalid(e.unlikely.line, "this line is not UTF-8, and read as %s it has symbols inside words: give the file's encoding (%s)", Windows1252, otherEncodings)
	case e.currency.count > 0:
		return "", invalid(e.currency.line, "this line has a byte that is ¤ in %s and € in %s: give the file's encoding", Windows1252, ISO8859x15)
	}
	return Windows1252, nil
}

// coincidenceShare is the minimum number of accented Windows-1252 letters for each pair of its characters
// that could be one UTF-8 character.
const coincidenceShare = 10

// unlikelyShare is the minimum number of accented Windows-1252 letters for each unlikely byte. Files that
// mix Windows-1252 and CP850 have fewer.
const unlikelyShare = 10

func invalid(line int, format string, args ...any) error {
	return &FileError{Code: CodeInvalidEncoding, Line: line, Message: fmt.Sprintf(format, args...)}
}

// detectOtherFormat recognizes other file formats that people upload and says what to do.
func detectOtherFormat(sample []byte) string {
	begins := func(magic string) bool { return bytes.HasPrefix(sample, []byte(magic)) }
	text := bytes.ToLower(bytes.TrimSpace(bytes.TrimPrefix(sample[:min(len(sample), 512)], utf8Mark)))
	switch {
	case begins("PK\x03\x04"), begins("PK\x05\x06"):
		switch {
		case bytes.Contains(sample, []byte("xl/")), bytes.Contains(sample, []byte("[Content_Types].xml")):
			return "the file is an Excel workbook (.xlsx): in Excel, save it as \"CSV UTF-8\" and upload that"
		case bytes.Contains(sample, []byte("opendocument.spreadsheet")):
			return "the file is a LibreOffice spreadsheet (.ods): save it as CSV and upload that"
		}
		return "the file is a ZIP archive: unpack it and upload the CSV file that is in it"
	case begins("\xD0\xCF\x11\xE0\xA1\xB1\x1A\xE1"):
		return "the file is an Excel workbook (.xls): in Excel, save it as \"CSV UTF-8\" and upload that"
	case begins("%PDF-"):
		return "the file is a PDF document: upload the list as CSV"
	case begins("\x1f\x8b"):
		return "the file is compressed (gzip): unpack it and upload the CSV file"
	case begins(`{\rtf`):
		return "the file is an RTF document: upload the list as CSV"
	case bytes.HasPrefix(text, []byte("<!doctype")), bytes.HasPrefix(text, []byte("<html")),
		bytes.HasPrefix(text, []byte("<table")), bytes.HasPrefix(text, []byte("<?xml")):
		return "the file is a web page or XML, which Excel opens but which is not CSV: in Excel, save it as \"CSV UTF-8\" and upload that"
	}
	return ""
}

// manyControls recognizes binary content: at least one control character in twenty. Text contains only whitespace
// controls and U+001A. NULs at the end of a field, with which a database fills it, are left out.
func manyControls(sample []byte) bool {
	controls, size := 0, len(sample)
	for i, b := range sample {
		switch {
		case b == 0 && fills(byteAt(sample, i+1)):
			size--
		case b < ' ' && (b < '\t' || b > '\r') && b != 0x1a || b == 0x7f:
			controls++
		}
	}
	return controls*20 > size || size == 0
}

// fills reports whether a NUL before b is one of those that fill a field up to its end.
func fills(b byte) bool {
	return b == 0 || b == '"' || b == '\r' || b == '\n' || strings.IndexByte(Delimiters, b) >= 0
}
