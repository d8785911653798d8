package csvfile

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"strings"
	"unicode/utf8"
)

// Limits limit the resources of one file. Zero means the default given for the field.
type Limits struct {
	Rows      int // 2,000,000 rows, without the header, including invalid rows
	Columns   int // 200 columns
	LineBytes int // 65,536 bytes of UTF-8 in a physical line, and in a row of several lines
}

func (l Limits) orDefault() Limits {
	orElse := func(n *int, otherwise int) {
		if *n <= 0 {
			*n = otherwise
		}
	}
	orElse(&l.Rows, 2_000_000)
	orElse(&l.Columns, 200)
	orElse(&l.LineBytes, 64<<10)
	return l
}

// Options are given by the uploader. The zero value detects everything.
type Options struct {
	Delimiter byte // one of Delimiters
	Encoding  Encoding
	Limits    Limits
}

// windows is how many of the longest lines are in memory at once: the line being read, and enough after it
// to keep moving data rare.
const windows = 4

// Reader parses a file. It keeps four times Limits.LineBytes (256 KiB) of it in memory. It is for one
// goroutine.
type Reader struct {
	t        tokenizer
	limits   Limits
	encoding Encoding
	header   *Header
	physical int // fields of the header row, including unnamed ones at its end
	line     int // line of the row at the window's position
	rows     int
	usual    usualWidth
	// inCell: since a row with a broken quote, no row has had the usual number of fields: what was read may be the lines
	// of one cell.
	inCell bool
	err    error
}

// Open reads a file up to its header. r must be the whole file that the Inspection is about. Its error is a
// *FileError, or a wrapped one of r.
func Open(r io.Reader, seen Inspection, options Options) (*Reader, error) {
	if options.Delimiter != 0 && strings.IndexByte(Delimiters, options.Delimiter) < 0 {
		return nil, fmt.Errorf("open CSV: delimiter %q is none of %q", options.Delimiter, Delimiters)
	}
	encoding, err := seen.Encoding(options.Encoding)
	if err != nil {
		return nil, err
	}
	decoded, err := encoding.decode(r)
	if err != nil {
		return nil, fmt.Errorf("open CSV: %w", err)
	}
	limits := options.Limits.orDefault()
	reader := &Reader{limits: limits, encoding: encoding, line: 1, t: tokenizer{
		window: window{from: decoded, buf: make([]byte, windows*limits.LineBytes)},
		keep:   limits.Columns,
		limit:  limits.LineBytes,
	}}
	if err := reader.begin(options.Delimiter); err != nil {
		return nil, err
	}
	return reader, nil
}

// Decode reads a file that is not CSV as UTF-8 without its byte order mark. Its error is a *FileError, or a
// wrapped one of r.
func Decode(r io.Reader, seen Inspection, given Encoding) (io.Reader, error) {
	encoding, err := seen.Encoding(given)
	if err != nil {
		return nil, err
	}
	decoded, err := encoding.decode(r)
	if err != nil {
		return nil, fmt.Errorf("decode file: %w", err)
	}
	text := bufio.NewReader(decoded)
	for {
		begin, err := text.Peek(len(utf8Mark))
		if err != nil && !errors.Is(err, io.EOF) {
			return nil, fmt.Errorf("decode file: %w", err)
		}
		if !bytes.Equal(begin, utf8Mark) {
			return text, nil
		}
		if _, err := text.Discard(len(utf8Mark)); err != nil {
			return nil, fmt.Errorf("decode file: %w", err)
		}
	}
}

// begin reads what precedes the first row.
func (r *Reader) begin(delimiter byte) error {
	if err := r.t.fill(); err != nil {
		return fmt.Errorf("read CSV: %w", err)
	}
	for bytes.HasPrefix(r.t.buf[r.t.pos:r.t.end], utf8Mark) {
		r.t.pos += len(utf8Mark)
	}
	if stop, next, ok := r.t.line(); ok {
		if given, ok := delimiterLine(r.t.buf[r.t.pos:stop]); ok {
			r.t.pos, r.line = next, r.line+1
			if delimiter == 0 {
				delimiter = given
			}
		}
	}
	if delimiter == 0 {
		delimiter = detectDelimiter(r.t)
	}
	r.t.delimiter = delimiter
	return r.readHeader()
}

func (r *Reader) readHeader() error {
	line, v, err := r.record()
	switch {
	case errors.Is(err, io.EOF):
		return &FileError{Code: CodeEmptyFile, Message: "the file is empty"}
	case err != nil:
		return err
	case v == overlong:
		return &FileError{Code: CodeLineTooLong, Line: line, Message: fmt.Sprintf(
			"the line is longer than %d bytes: is the file CSV?", r.limits.LineBytes)}
	case v != found:
		return &FileError{Code: CodeNoHeader, Line: line, Message: "the first row must contain the column names, but a quote in it is not closed"}
	case r.t.hasRow():
		return &FileError{Code: CodeNoHeader, Line: line, Message: "the first row must contain the column names, but a line of a quoted name looks like a row: " +
			"close the quote, or remove the line breaks"}
	case r.t.filled > r.limits.Columns:
		return &FileError{Code: CodeTooManyColumns, Line: line, Message: fmt.Sprintf(
			"the file has %d columns, at most %d are allowed", r.t.filled, r.limits.Columns)}
	}
	names := make([]string, r.t.filled)
	for i := range names {
		names[i] = string(r.t.text(i))
	}
	r.physical = r.t.count
	r.header, err = newHeader(names)
	if fault, ok := errors.AsType[*FileError](err); ok {
		fault.Line = line
	}
	return err
}

// Header returns the names and meanings of the columns.
func (r *Reader) Header() *Header { return r.header }

// Delimiter returns the given or detected delimiter.
func (r *Reader) Delimiter() byte { return r.t.delimiter }

// Encoding returns the given or detected encoding.
func (r *Reader) Encoding() Encoding { return r.encoding }

// Next reads the next row that is not blank. Its error is
//
//   - io.EOF after the last row,
//   - a *RowError for an unreadable row: call Next again for the next one,
//   - a *FileError if the file cannot be read further, or a wrapped error of the reader: further calls
//     return it again.
//
// It allocates only for errors.
func (r *Reader) Next() (Row, error) {
	if r.err != nil {
		return Row{}, r.err
	}
	line, v, err := r.record()
	if err == nil {
		if r.rows++; r.rows > r.limits.Rows {
			err = &FileError{Code: CodeTooManyRows, Line: line, Message: fmt.Sprintf(
				"the file has more than %d rows: split it", r.limits.Rows)}
		}
	}
	broken := v == unclosed || v == doubtful
	if err == nil && v == overlong {
		broken, err = r.skipLine()
	}
	if err != nil {
		r.err = err
		return Row{}, err
	}
	last := line + r.t.lines - 1
	if code, column := r.fault(v); code != "" {
		r.inCell = r.inCell || broken || r.t.stray
		return Row{}, &RowError{Line: line, LastLine: last, Code: code, Column: column, Fields: r.t.count, Want: len(r.header.names)}
	}
	r.inCell = r.t.stray
	if !r.t.open {
		r.usual.add(min(r.t.count, len(r.header.names)))
	}
	return Row{Line: line, LastLine: last, t: &r.t}, nil
}

// fault returns the code of a RowError for the record, "" if it is a row, and the name of the column that it is about.
func (r *Reader) fault(v outcome) (code, column string) {
	switch {
	case v == unclosed:
		return CodeUnclosedQuote, r.columnName(r.t.count)
	case v == doubtful:
		return CodeRowInQuotes, r.columnName(r.t.count)
	case v == overlong:
		return CodeLineTooLong, ""
	case r.t.filled > r.physical:
		return CodeWrongFieldCount, ""
	case r.t.count <= r.header.Email:
		return CodeWrongFieldCount, r.columnName(r.header.Email)
	case r.inCell && r.t.count < r.usual.least(len(r.header.names)):
		return CodeWrongFieldCount, r.columnName(r.t.count)
	}
	return "", ""
}

func (r *Reader) columnName(i int) string {
	if i < len(r.header.names) {
		return r.header.names[i]
	}
	return ""
}

// skipLine advances to the line after one that is longer than the window may be, and reports whether it has a quote:
// without one, no cell of it continues on the next line. It keeps nothing of it.
func (r *Reader) skipLine() (quote bool, err error) {
	for {
		stop, next, ok := r.t.line()
		quote = quote || bytes.IndexByte(r.t.buf[r.t.pos:stop], '"') >= 0
		if ok {
			r.t.pos, r.line = next, r.line+1
			return quote, nil
		}
		r.t.pos = stop
		if err := r.t.fill(); err != nil {
			return quote, fmt.Errorf("read CSV: %w", err)
		}
	}
}

// record advances to the next record that is not blank and returns its first line. Its content is in r.t. It does not
// advance beyond an overlong line: the window has only its beginning.
func (r *Reader) record() (line int, v outcome, err error) {
	for {
		if r.t.pos == r.t.end && r.t.eof {
			return r.line, found, io.EOF
		}
		line = r.line
		switch v = r.t.scan(); v {
		case short:
			if err := r.t.fill(); err != nil {
				return line, v, fmt.Errorf("read CSV: %w", err)
			}
			continue
		case overlong:
			return line, v, nil
		}
		if v == found && r.header != nil {
			v = r.t.checkCells(r.header.Email, min(r.t.count, len(r.header.names)) == r.usual.least(len(r.header.names)))
		}
		text := r.t.buf[r.t.pos:r.t.stop]
		if bytes.IndexByte(text, 0) >= 0 {
			return line, v, hasNUL(line)
		}
		if r.encoding == UTF8 && !utf8.Valid(text) { // Postgres accepts nothing else, and r may differ from what was inspected
			return line, v, &FileError{Code: CodeInvalidEncoding, Line: line, Message: "this line is not UTF-8: the file changed after its upload"}
		}
		r.t.pos, r.line = r.t.next, line+r.t.lines
		if v != found || r.t.filled > 0 {
			return line, v, nil
		}
	}
}
