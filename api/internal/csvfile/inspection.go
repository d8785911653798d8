package csvfile

import (
	"bytes"
	"crypto/sha256"
	"fmt"
)

// Inspection is what an Inspector saw of a file.
type Inspection struct {
	Size   int64 // bytes
	SHA256 [sha256.Size]byte

	sample []byte // the file's beginning
	nul    bool   // a NUL byte somewhere
	utf8   bool   // all of it is valid UTF-8
	broken int    // the line where it is not
}

// Encoding decides how the file is to be decoded. given is what the uploader says,
// or Detect. A byte order mark decides; without one, a file that is valid UTF-8 is
// UTF-8, one whose every other byte is NUL is UTF-16, and any other is Windows-1252,
// which Excel in Portuguese saves. Its error is a *FileError: EMPTY_FILE, BINARY_FILE or
// INVALID_ENCODING.
func (i Inspection) Encoding(given Encoding) (Encoding, error) {
	if i.Size == 0 {
		return "", &FileError{Code: CodeEmptyFile, Message: "the file is empty"}
	}
	if kind := foreign(i.sample); kind != "" {
		return "", &FileError{Code: CodeBinaryFile, Message: kind}
	}
	decided, err := i.decide(given)
	if err != nil {
		return "", err
	}
	if decided.wide() {
		if i.Size%2 != 0 {
			return "", &FileError{Code: CodeInvalidEncoding, Message: "the file is UTF-16, but ends within a character: it was cut or is damaged"}
		}
		return decided, nil
	}
	if i.nul || manyControls(i.sample) {
		return "", &FileError{Code: CodeBinaryFile, Message: "the file is not text: save it as CSV and upload that"}
	}
	return decided, nil
}

func (i Inspection) decide(given Encoding) (Encoding, error) {
	marked := markOf(i.sample)
	if given != Detect && marked != Detect && given != marked {
		return "", i.invalid(0, "the file begins with the mark of %s, but %s was given as its encoding: leave the encoding out", marked, given)
	}
	switch {
	case given == UTF8, marked == UTF8:
		if !i.utf8 {
			return "", i.invalid(i.broken, "this line is not UTF-8: save the file again as CSV UTF-8, or leave the encoding out")
		}
		return UTF8, nil
	case given != Detect:
		return given, nil
	case marked != Detect:
		return marked, nil
	case i.nul:
		if wide := unmarkedWide(i.sample); wide != Detect {
			return wide, nil
		}
	case i.utf8:
		return UTF8, nil
	case mostlyUTF8(i.sample):
		// As Windows-1252 every João of it would be mailed as JoÃ£o.
		return "", i.invalid(i.broken, "the file is UTF-8, except for this line: correct it, or give windows-1252 as the encoding if it is that")
	}
	return Windows1252, nil
}

func (i Inspection) invalid(line int, format string, args ...any) error {
	return &FileError{Code: CodeInvalidEncoding, Line: line, Message: fmt.Sprintf(format, args...)}
}

// foreign recognises what people upload in place of a CSV file and says what to do.
func foreign(sample []byte) string {
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

// manyControls tells content that is no text even though it has no NUL: one control
// character in twenty. Text has none but the few that move the cursor, and U+001A.
func manyControls(sample []byte) bool {
	controls := 0
	for _, b := range sample {
		if b < ' ' && (b < '\t' || b > '\r') && b != 0x1a || b == 0x7f {
			controls++
		}
	}
	return controls*20 > len(sample)
}
