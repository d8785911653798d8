package csvfile

import (
	"fmt"
	"strings"
	"unicode/utf8"
)

// Codes of a FileError.
const (
	CodeEmptyFile       = "EMPTY_FILE"
	CodeBinaryFile      = "BINARY_FILE"
	CodeNoHeader        = "NO_HEADER"
	CodeDuplicateColumn = "DUPLICATE_COLUMN"
	CodeTooManyColumns  = "TOO_MANY_COLUMNS"
	CodeTooManyRows     = "TOO_MANY_ROWS"
	CodeLineTooLong     = "LINE_TOO_LONG"
	CodeInvalidEncoding = "INVALID_ENCODING"
	CodeNoEmailColumn   = "NO_EMAIL_COLUMN"
)

// Codes of a RowError.
const (
	CodeWrongFieldCount = "WRONG_FIELD_COUNT"
	CodeUnclosedQuote   = "UNCLOSED_QUOTE"
)

// FileError says why a file cannot be read, or not further. Its message is meant for
// the person who uploaded it; the only content of the file that it quotes are names
// of columns.
type FileError struct {
	Code    string
	Line    int // physical line, 1-based; 0 where no line is to blame
	Message string
}

func (e *FileError) Error() string {
	if e.Line == 0 {
		return e.Message
	}
	return fmt.Sprintf("line %d: %s", e.Line, e.Message)
}

// RowError is one row that cannot be read. The rows after it can.
type RowError struct {
	Line     int    // where the row begins: physical line, 1-based
	LastLine int    // where it ends; of an UNCLOSED_QUOTE only the first line is lost
	Column   string // the header's name of the column to blame; empty where there is none
	Code     string
	Fields   int // how many fields the row has, WRONG_FIELD_COUNT only
	Want     int // how many the header has, WRONG_FIELD_COUNT only
}

func (e *RowError) Error() string {
	if e.Code == CodeUnclosedQuote {
		return fmt.Sprintf("line %d: a quote opens a field and does not close it", e.Line)
	}
	return fmt.Sprintf("line %d: the row has %d fields, the header has %d", e.Line, e.Fields, e.Want)
}

// quoted shows the name of a column in a message. A "name" that long is no name.
func quoted(name string) string {
	const longest = 40
	if utf8.RuneCountInString(name) > longest {
		name = string([]rune(name)[:longest]) + "…"
	}
	return `"` + name + `"`
}

// listed shows the first few of them.
func listed(names []string) string {
	const most = 10
	var shown []string
	for _, name := range names {
		if name == "" {
			continue
		}
		if len(shown) == most {
			shown = append(shown, "…")
			break
		}
		shown = append(shown, quoted(name))
	}
	return strings.Join(shown, ", ")
}
