// Package sesmail has the emails of the simulator: the body of SendEmail, what SES refuses in it, the
// mail that would arrive, and the events about it.
package sesmail

import (
	"time"
)

// Mail is one accepted email as SES would send it: texts given without a charset
// have lost their non-ASCII characters.
type Mail struct {
	MessageID        string       `json:"messageId"`
	Time             time.Time    `json:"time"`
	From             string       `json:"from"`
	To               []string     `json:"to"`
	CC               []string     `json:"cc,omitempty"`
	BCC              []string     `json:"bcc,omitempty"`
	ReplyTo          []string     `json:"replyTo,omitempty"`
	Subject          string       `json:"subject"`
	Text             string       `json:"text,omitempty"`
	HTML             string       `json:"html,omitempty"`
	Headers          []Pair       `json:"headers,omitempty"`
	Tags             []Pair       `json:"tags,omitempty"`
	Attachments      []Attachment `json:"attachments,omitempty"`
	ConfigurationSet string       `json:"configurationSet,omitempty"`

	// The ids are the values of the tags outbox_id, attempt_id and company_id.
	OutboxID  string `json:"outboxId,omitempty"`
	AttemptID string `json:"attemptId,omitempty"`
	CompanyID string `json:"companyId,omitempty"`
}

// Pair is a header or a tag.
type Pair struct {
	Name  string `json:"name"`
	Value string `json:"value"`
}

// Recipients calls yield for each of to, cc and bcc until it returns false.
func (m *Mail) Recipients(yield func(string) bool) {
	for _, list := range [...][]string{m.To, m.CC, m.BCC} {
		for _, address := range list {
			if !yield(address) {
				return
			}
		}
	}
}

// RecipientCount is the number of recipients in to, cc and bcc.
func (m *Mail) RecipientCount() int { return len(m.To) + len(m.CC) + len(m.BCC) }

// HasRecipient reports whether the mail has the recipient address, or one of a domain if it is
// "@domain".
func (m *Mail) HasRecipient(address string) bool {
	for r := range m.Recipients {
		if matchesAddress(r, address) {
			return true
		}
	}
	return false
}

// Size estimates the memory of the mail: its texts plus 1 KiB.
func (m *Mail) Size() int64 {
	return int64(len(m.Subject)+len(m.Text)+len(m.HTML)) + int64(1+len(m.Attachments))<<10
}
