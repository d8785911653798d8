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
	CodeLineTooLong     = "LINE_TOO_LONG" // of the header: FileError, of a row: RowError
	CodeInvalidEncoding = "INVALID_ENCODING"
	CodeNoEmailColumn   = "NO_EMAIL_COLUMN"
)

// Codes of a RowError.
const (
	CodeWrongFieldCount = "WRONG_FIELD_COUNT"
	CodeUnclosedQuote   = "UNCLOSED_QUOTE"
	CodeRowInQuotes     = "ROW_IN_QUOTES"
)

// FileError says why a file cannot be read, or not further. Its message is for the person who uploaded
// the file; the only file content it contains are column names.
type FileError struct {
	Code    string
	Line    int // physical line, 1-based; 0 if it is not about a line
	Message string
}

func (e *FileError) Error() string {
	if e.Line == 0 {
		return e.Message
	}
	return fmt.Sprintf("line %d: %s", e.Line, e.Message)
}

func hasNUL(line int) error {
	return &FileError{Code: CodeBinaryFile, Line: line, Message: "this line has a NUL character (a byte 0), with which some databases fill fields: " +
		"remove all of them, or replace them by spaces, and upload the file again"}
}

// RowError is an unreadable row. The rows after it can be read.
type RowError struct {
	Line     int    // first physical line of the row, 1-based
	LastLine int    // last line of the row; for an UNCLOSED_QUOTE only the first line is rejected
	Column   string // name of the invalid column; empty if there is none
	Code     string
	Fields   int // fields of the row, for WRONG_FIELD_COUNT
	Want     int // fields of the header, for WRONG_FIELD_COUNT
}

func (e *RowError) Error() string {
	where := fmt.Sprintf("line %d", e.Line)
	if e.LastLine > e.Line {
		where = fmt.Sprintf("lines %d to %d", e.Line, e.LastLine)
	}
	switch e.Code {
	case CodeUnclosedQuote:
		return where + ": a quoted field is not closed"
	case CodeRowInQuotes:
		return where + ": a quoted field contains a line that looks like a row, or is not closed: " +
			"close the quote on its line, or remove the line breaks within the field"
	case CodeLineTooLong:
		return where + ": the line is too long"
	}
	return fmt.Sprintf("%s: the row has %d fields, the header has %d", where, e.Fields, e.Want)
}

// quoted formats a column name for a message, truncated to 40 characters.
func quoted(name string) string {
	const longest = 40
	if utf8.RuneCountInString(name) > longest {
		name = string([]rune(name)[:longest]) + "…"
	}
	return `"` + name + `"`
}

// listed formats the first ten names.
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
