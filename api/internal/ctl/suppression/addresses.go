package suppression

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"iter"
	"os"
	"slices"
	"strings"

	"email-gateway/api/internal/csvfile"
	"email-gateway/api/internal/ctl/command"
	"email-gateway/shared/email"
)

// addressLine is one address of the file.
type addressLine struct {
	line                  int
	address, reason, note string
	otherReason           bool // the reason of the row is a text, which is the note if the row has none
	changedNote           bool // the note was shortened, or had line ends or other control characters
}

// openAddresses opens the file and detects its format.
func openAddresses(c *command.Invocation, path string, encoding csvfile.Encoding) (lines iter.Seq2[addressLine, error], done func(), err error) {
	if path == "-" {
		return addressesIn(c.Stdin), func() {}, nil
	}
	file, err := os.Open(path)
	if err != nil {
		return nil, nil, command.Usagef("%v", err)
	}
	done = func() { _ = file.Close() }
	inspector := csvfile.NewInspector()
	if _, err := io.Copy(inspector, file); err != nil {
		done()
		return nil, nil, fmt.Errorf("read %s: %w", path, err)
	}
	if _, err := file.Seek(0, io.SeekStart); err != nil {
		done()
		return nil, nil, command.Usagef("%s cannot be read twice: pass it on standard input, one address per line", path)
	}
	seen := inspector.Inspection()
	reader, err := csvfile.Open(file, seen, csvfile.Options{Encoding: encoding})
	var wrong *csvfile.FileError
	switch {
	case err == nil:
		header := reader.Header()
		if err = errors.Join(header.CheckUnique(header.Index("reason")), header.CheckUnique(header.Index("note"))); err == nil {
			return rowsIn(reader), done, nil
		}
	case errors.As(err, &wrong) && wrong.Code == csvfile.CodeNoHeader: // the first line is an address
		var list io.Reader
		if _, err = file.Seek(0, io.SeekStart); err == nil {
			list, err = csvfile.Decode(file, seen, encoding)
		}
		if err == nil {
			return addressesIn(list), done, nil
		}
	}
	done()
	return nil, nil, fmt.Errorf("%s: %w", path, err)
}

// maxAddressLine is the maximum length of a line (bytes), as that of a CSV file.
const maxAddressLine = 64 << 10

// addressesIn reads one address per line.
func addressesIn(r io.Reader) iter.Seq2[addressLine, error] {
	return func(yield func(addressLine, error) bool) {
		scanner := bufio.NewScanner(r)
		scanner.Buffer(nil, maxAddressLine+len("\r\n"))
		scanner.Split(splitLines)
		n := 1
		for ; scanner.Scan(); n++ {
			text := strings.TrimSpace(strings.TrimPrefix(scanner.Text(), "\ufeff"))
			if text != "" && !strings.HasPrefix(text, "#") && !yield(addressLine{line: n, address: text}, nil) {
				return
			}
		}
		switch err := scanner.Err(); {
		case errors.Is(err, bufio.ErrTooLong):
			yield(addressLine{}, fmt.Errorf("line %d is longer than %d bytes: the file must contain one address per line, or be a CSV file whose first row contains the column names", n, maxAddressLine))
		case err != nil:
			yield(addressLine{}, fmt.Errorf("read addresses: %w", err))
		}
	}
}

// splitLines is bufio.ScanLines for lines that end with LF, CRLF or CR.
func splitLines(data []byte, atEOF bool) (advance int, line []byte, err error) {
	end := bytes.IndexAny(data, "\r\n")
	switch {
	case end < 0 && atEOF && len(data) > 0:
		return len(data), data, nil
	case end < 0:
		return 0, nil, nil
	case data[end] == '\n':
		return end + 1, data[:end], nil
	case end+1 == len(data) && !atEOF: // an LF may follow the CR
		return 0, nil, nil
	case end+1 < len(data) && data[end+1] == '\n':
		return end + 2, data[:end], nil
	}
	return end + 1, data[:end], nil
}

// rowsIn reads the rows of a CSV file.
func rowsIn(reader *csvfile.Reader) iter.Seq2[addressLine, error] {
	header := reader.Header()
	reason, note := header.Index("reason"), header.Index("note")
	return func(yield func(addressLine, error) bool) {
		for {
			row, err := reader.Next()
			var broken *csvfile.RowError
			switch {
			case errors.Is(err, io.EOF):
				return
			case errors.As(err, &broken):
				if !yield(addressLine{line: broken.Line}, broken) {
					return
				}
				continue
			case err != nil:
				yield(addressLine{}, err)
				return
			}
			l := addressLine{line: row.Line, address: string(row.Field(header.Email))}
			l.describe(string(row.Field(reason)), string(row.Field(note)))
			if !yield(l, nil) {
				return
			}
		}
	}
}

// maxNote is the maximum length of a note (characters), as the api has it.
const maxNote = 200

// describe sets the reason and the note to those of a row. Providers write the mail server's answer into the reason.
func (l *addressLine) describe(reason, note string) {
	reason, note = strings.TrimSpace(reason), strings.TrimSpace(note)
	if upper := strings.ToUpper(reason); reason == "" || slices.Contains(reasons(), upper) {
		l.reason = upper
	} else {
		l.otherReason, note = true, orElse(note, reason)
	}
	l.note = strings.Map(func(r rune) rune {
		if email.HasControl(string(r)) {
			return ' '
		}
		return r
	}, note)
	if short := []rune(l.note); len(short) > maxNote {
		l.note = strings.TrimSpace(string(short[:maxNote-1])) + "…"
	}
	l.changedNote = l.note != note
}
