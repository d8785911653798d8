package outbox

import (
	"strings"
	"time"

	"email-gateway/shared/draft"
	"email-gateway/shared/email"
	"email-gateway/shared/rules"
)

// Aggregate identifies what an email is about, in the program's own terms, and which of the emails
// about it this is. Each part starts with a letter or digit and contains letters, digits and . _ :
// = ~ - only; Type and EventType have at most 64 characters, ID 200.
type Aggregate struct {
	Type      string // "interview"
	ID        string // the interview's
	EventType string // "REMINDER_24H"
}

// Email has the fields of POST /v1/email/send, with the same rules, except attachments and template:
// an email with these is sent with that request. A blank text, 0, nil and the zero time mean "not
// given".
type Email struct {
	To      string
	CC, BCC []string // at most 5 each
	Subject string   // 1 to 150 characters
	HTML    string   // HTML or Text is required; at most 512 KiB
	Text    string   // the same
	// NoAutoText: no text part is made from HTML if there is no Text.
	NoAutoText bool
	ReplyTo    string
	From       string // the company's default sender if it is not given
	Headers    map[string]string
	Tags       []string
	// Recipient is the person at To, identified by at least one of its first three fields.
	Recipient Recipient
	Priority  int // 1, the most urgent, to 10; 5 if it is not given
	Delivery  email.Delivery
	SendAt    time.Time // within a year; a past time means now
	// RequestID appears in logs and lists; the default is an id of the transaction, the same for
	// all emails written in it.
	RequestID string
}

// Recipient is the person at the address; Email defaults to To. A CPF or CNPJ itself is only
// accepted by the HTTP API, which has the key to encrypt it.
type Recipient struct {
	RecipientID string // a UUID
	ExternalID  string
	CPFCNPJHash string // the number's SHA-256 in hex
	RazaoSocial string
	Nome        string
	Email       string
}

// InvalidError lists all faults of an email. The database was not used yet.
type InvalidError struct {
	Faults []rules.Fault
}

func (e *InvalidError) Error() string {
	said := make([]string, len(e.Faults))
	for i, f := range e.Faults {
		said[i] = f.Field + " " + f.Message
	}
	return "the email is not valid: " + strings.Join(said, "; ")
}

// draft is the email in the form for validation. It shares no memory with e, since validation
// normalizes addresses.
func (e Email) draft(about Aggregate) *draft.Email {
	d := &draft.Email{
		To: e.To, CC: append([]string(nil), e.CC...), BCC: append([]string(nil), e.BCC...), Subject: e.Subject, HTML: e.HTML, Text: e.Text,
		ReplyTo: given(e.ReplyTo), From: given(e.From), Headers: e.Headers, Tags: append([]string(nil), e.Tags...), Delivery: given(string(e.Delivery)),
		Recipient: &draft.Recipient{
			RecipientID: given(e.Recipient.RecipientID), ExternalID: given(e.Recipient.ExternalID), CPFCNPJHash: given(e.Recipient.CPFCNPJHash),
			RazaoSocial: e.Recipient.RazaoSocial, Nome: e.Recipient.Nome, Email: e.Recipient.Email,
		},
		Aggregate: &draft.Aggregate{Type: about.Type, ID: about.ID, EventType: about.EventType},
	}
	if e.NoAutoText {
		d.AutoText = new(bool)
	}
	if e.Priority != 0 {
		d.Priority = &e.Priority
	}
	return d
}

// given returns nil for a blank text.
func given(text string) *string {
	if email.IsBlank(text) {
		return nil
	}
	return &text
}
