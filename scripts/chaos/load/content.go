package load

import (
	"crypto/sha256"
	"encoding/hex"
)

// Content is what SES must receive of an email.
type Content struct {
	Subject     string
	HTML        string // SHA-256
	Attachments []Attachment
	// Template: the subject and html are those of a stored template.
	Template bool
}

// Attachment is an attachment that SES must receive.
type Attachment struct {
	Name, Type, SHA256 string
}

// write sets the email's subject and html.
func (e *email) write(subject, html string) {
	e.request["subject"], e.request["html"] = subject, html
	e.content.Subject, e.content.HTML = subject, digest([]byte(html))
}

func digest(content []byte) string {
	sum := sha256.Sum256(content)
	return hex.EncodeToString(sum[:])
}
