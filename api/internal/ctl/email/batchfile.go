package email

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"email-gateway/api/internal/ctl/command"
)

const (
	// batchEmails and batchBytes are the api's limits of a batch. The second leaves room for what is around the emails.
	batchEmails = 500
	batchBytes  = 10<<20 - 1<<10
)

// batchFile reads emails from JSON lines or a JSON array, as many at a time as a batch may have.
type batchFile struct {
	file    *bufio.Reader
	decoder *json.Decoder // nil before the first email
	array   bool
	ended   bool            // the array has
	read    int             // emails
	ahead   json.RawMessage // an email that did not fit into the last batch
}

func newBatchFile(r io.Reader) *batchFile { return &batchFile{file: bufio.NewReader(r)} }

// openInput opens a file; - is standard input.
func openInput(c *command.Invocation, path string) (file io.Reader, done func(), err error) {
	if path == "-" {
		return c.Stdin, func() {}, nil
	}
	opened, err := os.Open(path)
	if err != nil {
		return nil, nil, command.Usagef("%v", err)
	}
	return opened, func() { _ = opened.Close() }, nil
}

// next returns the next batch, or io.EOF.
func (f *batchFile) next() (emails []json.RawMessage, err error) {
	bytes := 0
	for len(emails) < batchEmails {
		one, err := f.email()
		switch {
		case errors.Is(err, io.EOF) && len(emails) > 0:
			return emails, nil
		case errors.Is(err, io.EOF) && f.read == 0:
			return nil, command.Usagef("the file has no email")
		case err != nil:
			return nil, err
		}
		if bytes += len(one) + len(","); bytes > batchBytes {
			if len(emails) == 0 {
				return nil, command.Usagef("email %d of the file is larger than 10 MiB", f.read)
			}
			f.ahead = one
			return emails, nil
		}
		emails = append(emails, one)
	}
	return emails, nil
}

// email returns the next email, or io.EOF.
func (f *batchFile) email() (json.RawMessage, error) {
	if one := f.ahead; one != nil {
		f.ahead = nil
		return one, nil
	}
	if f.decoder == nil {
		if err := f.begin(); err != nil {
			return nil, err
		}
	}
	if f.array && !f.decoder.More() {
		if !f.ended {
			if _, err := f.decoder.Token(); err != nil {
				return nil, f.wrong(err)
			}
			f.ended = true
		}
		if _, err := f.decoder.Token(); !errors.Is(err, io.EOF) {
			return nil, command.Usagef("the file has data after the end of its array")
		}
		return nil, io.EOF
	}
	var one json.RawMessage
	if err := f.decoder.Decode(&one); err != nil {
		return nil, f.wrong(err)
	}
	f.read++
	return one, nil
}

// begin finds out whether the file is an array: JSON lines begin with an object.
func (f *batchFile) begin() error {
	for {
		first, err := f.file.ReadByte()
		switch {
		case errors.Is(err, io.EOF):
			return io.EOF
		case err != nil:
			return fmt.Errorf("read the file: %w", err)
		case strings.IndexByte(" \t\r\n\xEF\xBB\xBF", first) >= 0: // or a byte order mark
			continue
		}
		f.array = first == '['
		if err := f.file.UnreadByte(); err != nil {
			return fmt.Errorf("read the file: %w", err)
		}
		f.decoder = json.NewDecoder(f.file)
		if f.array {
			_, err = f.decoder.Token()
		}
		return err
	}
}

// wrong describes an error of the decoder.
func (f *batchFile) wrong(err error) error {
	var syntax *json.SyntaxError
	switch {
	case errors.Is(err, io.EOF) && !f.array:
		return io.EOF
	case errors.Is(err, io.EOF):
		return command.Usagef("the file ends after email %d, before the end of its array", f.read)
	case errors.As(err, &syntax), errors.Is(err, io.ErrUnexpectedEOF):
		return command.Usagef("the file is not valid JSON after email %d (byte %d): %v", f.read, f.decoder.InputOffset(), err)
	}
	return fmt.Errorf("read the file: %w", err)
}
