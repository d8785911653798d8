package load

import (
	"crypto/sha256"
	"encoding/hex"
	"slices"
	"time"
)

// Content is an email as it was submitted, and what SES must receive of it.
type Content struct {
	Tenant      int // the number of the key, as in Feed
	CC          []string
	SendAt      time.Time // zero: immediately
	Suppressed  bool      // its tenant suppressed its address before
	Cancel      bool      // its tenant withdraws it after its acceptance
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

// addContent records the email before it is submitted.
func (l *Load) addContent(e email) {
	e.content.Tenant = slices.Index(l.keys(), e.key)
	e.content.Suppressed, e.content.Cancel = e.suppress, e.cancel
	l.Ledger.addContent(e)
}

func digest(content []byte) string {
	sum := sha256.Sum256(content)
	return hex.EncodeToString(sum[:])
}
