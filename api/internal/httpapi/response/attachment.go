package response

import (
	"encoding/hex"

	"github.com/google/uuid"

	"email-gateway/shared/store/file"
)

// Attachment is an attachment in a response.
type Attachment struct {
	FileID      uuid.UUID `json:"fileId"`
	Filename    string    `json:"filename"`
	ContentType string    `json:"contentType"`
	Size        int64     `json:"size"`
	SHA256      string    `json:"sha256"`
	ContentID   string    `json:"contentId,omitempty"`
	Disposition string    `json:"disposition"`
}

// Attachments describes attachments in their order.
func Attachments(all []file.Attachment) []Attachment {
	details := make([]Attachment, len(all))
	for i, a := range all {
		details[i] = Attachment{a.FileID, a.Filename, a.ContentType, a.Size, hex.EncodeToString(a.SHA256), a.ContentID, a.Disposition}
	}
	return details
}
