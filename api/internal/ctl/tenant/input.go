package tenant

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strings"
	"unicode/utf8"

	"email-gateway/api/internal/csvfile"
	"email-gateway/api/internal/ctl/command"
)

// EncodingUsage is the help text of --encoding.
var EncodingUsage = "`NAME`: " + strings.Join(csvfile.Encodings(), ", ")

// maxTemplate is the api's limit of a template (bytes).
const maxTemplate = 512 << 10

// InlineOrFile returns a template from its flag or from a file.
func InlineOrFile(inline, path, flag string, stdin io.Reader) (string, error) {
	if path == "" {
		return inline, nil
	}
	text, err := readText(path, flag, maxTemplate, stdin)
	if err == nil && len(text) == 0 {
		err = command.Usagef("%s: %s is empty", flag, path)
	}
	return string(text), err
}

// maxRequest is the largest request body that any api accepts: attachments of 26 MiB in base64, and 2 MiB (bytes).
const maxRequest = 38 << 20

// JSONFile returns the JSON of a file that a flag names.
func JSONFile(path, flag string, stdin io.Reader) (json.RawMessage, error) {
	text, err := readText(path, flag, maxRequest, stdin)
	if err == nil && !json.Valid(text) {
		err = command.Usagef("%s: %s is not JSON", flag, path)
	}
	return text, err
}

// readText reads a text file of at most limit bytes; - is standard input.
func readText(path, flag string, limit int64, stdin io.Reader) ([]byte, error) {
	file := stdin
	if path != "-" {
		opened, err := os.Open(path)
		if err != nil {
			return nil, command.Usagef("%s: %v", flag, err)
		}
		defer opened.Close()
		file = opened
	}
	content, err := io.ReadAll(io.LimitReader(file, limit+1))
	switch {
	case err != nil:
		return nil, fmt.Errorf("%s: %w", flag, err)
	case int64(len(content)) > limit:
		return nil, command.Usagef("%s: %s is larger than %.1f MiB", flag, path, float64(limit)/(1<<20))
	}
	text, err := Text(content)
	if err != nil {
		return nil, command.Usagef("%s: %s %v", flag, path, err)
	}
	return text, nil
}

// Text returns the content of a text file without the byte order mark that Windows programs write. Its error, for a file that is
// not UTF-8, follows the file's name.
func Text(content []byte) ([]byte, error) {
	text := bytes.TrimPrefix(content, []byte("\ufeff"))
	for at := 0; at < len(text); {
		r, size := utf8.DecodeRune(text[at:])
		if r == utf8.RuneError && size == 1 {
			return nil, fmt.Errorf("is not UTF-8 (byte %d): save it as UTF-8", len(content)-len(text)+at+1)
		}
		at += size
	}
	return text, nil
}
