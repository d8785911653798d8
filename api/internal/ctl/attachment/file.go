package attachment

import (
	"fmt"

	"github.com/google/uuid"

	"email-gateway/api/internal/ctl/output"
)

// File is an attachment as the api shows it. Its JSON names are those of the HTTP API.
type File struct {
	FileID      uuid.UUID `json:"fileId"`
	Filename    string    `json:"filename"`
	ContentType string    `json:"contentType"`
	Size        int64     `json:"size"`
	SHA256      string    `json:"sha256"`
	ContentID   string    `json:"contentId,omitempty"`
	Disposition string    `json:"disposition"`
}

// Rows returns the table rows of attachments, the first of them with their name.
func Rows(all []File) [][]string {
	rows := make([][]string, len(all))
	for i, f := range all {
		text := fmt.Sprintf("%s (%s, %s bytes)", f.Filename, f.ContentType, output.Thousands(int(f.Size)))
		if f.ContentID != "" {
			text += ", " + f.Disposition + " as cid:" + f.ContentID
		}
		rows[i] = []string{"", text}
	}
	if len(rows) > 0 {
		rows[0][0] = "attached"
	}
	return rows
}
