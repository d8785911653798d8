package tenant

import (
	"fmt"
	"io"
	"os"
	"strings"

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
	file := stdin
	if path != "-" {
		opened, err := os.Open(path)
		if err != nil {
			return "", command.Usagef("%s: %v", flag, err)
		}
		defer opened.Close()
		file = opened
	}
	content, err := io.ReadAll(io.LimitReader(file, maxTemplate+1))
	switch {
	case err != nil:
		return "", fmt.Errorf("%s: %w", flag, err)
	case len(content) > maxTemplate:
		return "", command.Usagef("%s: %s is larger than 512 KiB", flag, path)
	case len(content) == 0:
		return "", command.Usagef("%s: %s is empty", flag, path)
	}
	return string(content), nil
}
