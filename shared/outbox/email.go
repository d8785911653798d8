package outbox

import (
	"strings"
	"time"

	"email-gateway/shared/draft"
	"email-gateway/shared/email"
	"email-gateway/shared/rules"
)

// Aggregate identifies what an email is about and, by EventType, which email about it this is. The program chooses the
// names. Each part starts with a letter or digit and contains only letters, digits and . _ : = ~ -. Type and EventType
// have at most 64 characters, ID 200.
type Aggregate struct {
	Type      string // such as "interview"
	ID        string // such as the interview's id
	EventType string // such as "REMINDER_24H"
}

// Email has the fields of POST /v1/email/send, with the same rules, except attachments and template: send such an email
// with that request. A blank text, 0, nil and the zero time mean "not given".
type Email struct {
	To      string
	CC, BCC []string // at most 5 each
	Subject string   // 1 to 150 characters
	HTML    string   // HTML or Text is required; at most 512 KiB
	Text    string   // Text or HTML is required; at most 512 KiB
	// NoAutoText means that no text part is generated from HTML if Text is empty.
	NoAutoText bool
	ReplyTo    string
	From       string // default: the company's default sender
	Headers    map[string]string
	Tags       []string
	// Recipient is the person at To, identified by at least one of its first three fields.
	Recipient Recipient
	Priority  int // 1 (most urgent) to 10; default: 5
	Delivery  email.Delivery
	SendAt    time.Time // within a year; a past time means now
	// RequestID appears in logs and lists. The default is an id of the transaction, which all emails written in it
	// share.
	RequestID string
}

// Recipient is the person at the address; Email defaults to To. Only the HTTP API accepts a CPF or CNPJ itself, because
// it has the key to encrypt the number.
type Recipient struct {
	RecipientID string // a UUID
	ExternalID  string
	CPFCNPJHash string // the number's SHA-256 in hex
	RazaoSocial string
	Nome        string
	Email       string
}

// InvalidError lists all faults of an email. Nothing was sent to the database.
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

// draft returns the email in the form for validation. It shares no slices with e, because validation normalizes
// addresses.
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
