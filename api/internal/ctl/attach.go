package ctl

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"mime"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"

	"github.com/google/uuid"

	"email-gateway/api/internal/client"
)

// attachUsage is the help text of --attach.
const attachUsage = "attach `FILE`, or a stored file as ID=FILENAME (repeatable, at most 10)"

// emailAttachment is an attachment of a request: content that the command has read, or a stored file.
type emailAttachment struct {
	Filename    string `json:"filename"`
	ContentType string `json:"contentType"`
	Content     []byte `json:"content,omitempty"` // base64 in JSON
	FileID      string `json:"fileId,omitempty"`
}

// attachment is an argument of --attach.
type attachment struct {
	emailAttachment
	path string // of a file that is not stored yet, else ""
}

// parseAttach parses the arguments of --attach and checks that the files exist, so that a wrong path is
// found before anything is uploaded.
func parseAttach(arguments []string) ([]attachment, error) {
	all := make([]attachment, len(arguments))
	for i, text := range arguments {
		if id, name, found := strings.Cut(text, "="); found {
			if _, err := uuid.Parse(id); err == nil {
				all[i] = attachment{emailAttachment: emailAttachment{Filename: name, ContentType: typeOfName(name), FileID: id}}
				continue
			}
		}
		about, err := os.Stat(text)
		switch {
		case err != nil:
			return nil, usagef("--attach: %v", err)
		case about.IsDir():
			return nil, usagef("--attach: %s is a folder", text)
		}
		name := filepath.Base(text)
		all[i] = attachment{emailAttachment{Filename: name, ContentType: typeOfName(name)}, text}
	}
	return all, nil
}

// typeOfName is the media type that a file's extension stands for. The api compares it with the content.
func typeOfName(name string) string {
	if media := mime.TypeByExtension(filepath.Ext(name)); media != "" {
		return media
	}
	return "application/octet-stream"
}

// readAttachments reads the files, which the request then contains.
func readAttachments(all []attachment) ([]emailAttachment, error) {
	request := make([]emailAttachment, len(all))
	for i, a := range all {
		request[i] = a.emailAttachment
		if a.path == "" {
			continue
		}
		content, err := os.ReadFile(a.path)
		if err != nil {
			return nil, usagef("--attach: %v", err)
		}
		request[i].Content = content
	}
	return request, nil
}

// storeAttachments uploads the files, which the JSON list then names by their ids. Without attachments it returns "".
func storeAttachments(ctx context.Context, api *client.Client, all []attachment, p *progress) (string, error) {
	if len(all) == 0 {
		return "", nil
	}
	request := make([]emailAttachment, len(all))
	for i, a := range all {
		request[i] = a.emailAttachment
		if a.path == "" {
			continue
		}
		p.update(step{what: "Uploading " + a.Filename})
		stored, err := storeFile(ctx, api, a.path)
		if err != nil {
			return "", fmt.Errorf("--attach %s: %w", a.path, err)
		}
		request[i].FileID = stored.ID.String()
	}
	list, err := json.Marshal(request)
	if err != nil {
		return "", fmt.Errorf("encode attachments: %w", err)
	}
	return string(list), nil
}

// attachmentField matches the api's name of attachments, or of a field of one, at the beginning of a text.
var attachmentField = regexp.MustCompile(`^attachments(?:\[(\d+)\]\.)?`)

// atAttach replaces the api's names of attachments in a problem by the arguments of --attach.
func atAttach(err error, arguments []string) error {
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
