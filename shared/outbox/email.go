package outbox

import (
	"strings"
	"time"

	"email-gateway/shared/draft"
	"email-gateway/shared/email"
	"email-gateway/shared/rules"
)

// Aggregate is what an email is about, in the program's own words, and which of the
// emails about it this is. Each part begins with a letter or digit and holds letters,
// digits and . _ : = ~ - only; Type and EventType have at most 64 characters, ID 200.
type Aggregate struct {
	Type      string // "interview"
	ID        string // the interview's
	EventType string // "REMINDER_24H"
}

// Email is what POST /v1/email/send takes, by the same rules. A blank text, 0, nil and the
// zero time are "not given".
type Email struct {
	To      string
	CC, BCC []string // at most 5 each
	Subject string   // 1 to 150 characters
	HTML    string   // at most 512 KiB
	Text    string   // the same
	ReplyTo string
	From    string // the company's default sender if it is not given
	Headers map[string]string
	Tags    []string
	// Recipient is the person at To, named by at least one of its first three fields.
	Recipient Recipient
	Priority  int // 1, the most urgent, to 10; 5 if it is not given
	Delivery  email.Delivery
	SendAt    time.Time // within a year; one that has passed is now
	// RequestID is found again in logs and lists; that of the transaction if it is not
	// given, the same for all that is written in it.
	RequestID string
}

// Recipient is the person behind the address, whose Email is To if it is not given. The
// number of a CPF or CNPJ itself is for the HTTP API, which has the key to encrypt it.
type Recipient struct {
	RecipientID string // a UUID
	ExternalID  string
	CPFCNPJHash string // the number's SHA-256 in hex
	RazaoSocial string
	Nome        string
	Email       string
}

// InvalidError says everything that is wrong with an email. Nothing was asked of the
// database yet.
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

// draft is the email in the form in which it is checked. It shares nothing with e: the
// check brings addresses into stored form.
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
	if e.Priority != 0 {
		d.Priority = &e.Priority
	}
	return d
}

// given is nil for a text that was not.
func given(text string) *string {
	if email.IsBlank(text) {
		return nil
	}
	return &text
}
