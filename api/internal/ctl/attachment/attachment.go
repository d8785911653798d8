// Package attachment reads and uploads the files that the flag --attach names, and prints the
// attachments of an email or a mailing.
package attachment

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"

	"github.com/google/uuid"

	"email-gateway/api/internal/client"
	"email-gateway/api/internal/ctl/command"
	"email-gateway/api/internal/ctl/file"
	"email-gateway/api/internal/ctl/output"
)

// FlagUsage is the help text of --attach.
const FlagUsage = "attach `FILE`, or a stored file as ID=FILENAME (repeatable, at most 10)"

// Attachment is an attachment of a request: content that the command has read, or a stored file. It has no type: the api
// detects it from the content, so that the same command sends the same type from every machine.
type Attachment struct {
	Filename string `json:"filename"`
	Content  []byte `json:"content,omitempty"` // base64 in JSON
	FileID   string `json:"fileId,omitempty"`
}

// Argument is an argument of --attach.
type Argument struct {
	Attachment
	path string // of a file that is not stored yet, else ""
}

// Parse parses the arguments of --attach and checks that the files exist, so that a wrong path is
// found before anything is uploaded.
func Parse(arguments []string) ([]Argument, error) {
	all := make([]Argument, len(arguments))
	for i, text := range arguments {
		if id, name, found := strings.Cut(text, "="); found {
			if _, err := uuid.Parse(id); err == nil {
				all[i] = Argument{Attachment: Attachment{Filename: name, FileID: id}}
				continue
			}
		}
		about, err := os.Stat(text)
		switch {
		case err != nil:
			return nil, command.Usagef("--attach: %v", err)
		case about.IsDir():
			return nil, command.Usagef("--attach: %s is a folder", text)
		}
		all[i] = Argument{Attachment{Filename: filepath.Base(text)}, text}
	}
	return all, nil
}

// Read reads the files, which the request then contains.
func Read(all []Argument) ([]Attachment, error) {
	request := make([]Attachment, len(all))
	for i, a := range all {
		request[i] = a.Attachment
		if a.path == "" {
			continue
		}
		content, err := os.ReadFile(a.path)
		if err != nil {
			return nil, command.Usagef("--attach: %v", err)
		}
		request[i].Content = content
	}
	return request, nil
}

// Upload uploads the files, which the JSON list then names by their ids. Without attachments it returns "".
func Upload(ctx context.Context, api *client.Client, all []Argument, p *output.Progress) (string, error) {
	if len(all) == 0 {
		return "", nil
	}
	request := make([]Attachment, len(all))
	for i, a := range all {
		request[i] = a.Attachment
		if a.path == "" {
			continue
		}
		p.Update(output.Step{What: "Uploading " + a.Filename})
		stored, err := file.Upload(ctx, api, a.path)
		if err != nil {
			return "", fmt.Errorf("--attach %s: %w", a.path, err)
		}
		request[i].FileID = stored.ID.String()
	}
	list, err := client.Encode(request)
	if err != nil {
		return "", fmt.Errorf("--attach: %w", err)
	}
	return string(list), nil
}

// attachmentField matches the api's name of attachments, or of a field of one, at the beginning of a text.
var attachmentField = regexp.MustCompile(`^attachments(?:\[(\d+)\]\.)?`)

// NameArguments replaces the api's names of attachments in a problem by the arguments of --attach.
func NameArguments(err error, arguments []string) error {
	var refused *client.Problem
	if len(arguments) == 0 || !errors.As(err, &refused) {
		return err
	}
	rename := func(text string) string {
		found := attachmentField.FindStringSubmatch(text)
		if found == nil {
			return text
		}
		name := "the files of --attach"
		if i, err := strconv.Atoi(found[1]); err == nil && i < len(arguments) {
			name = "--attach " + arguments[i] + ": "
		}
		return name + text[len(found[0]):]
	}
	refused.Detail = rename(refused.Detail)
	for i := range refused.Faults {
		refused.Faults[i].Field = rename(refused.Faults[i].Field)
	}
	return err
}
