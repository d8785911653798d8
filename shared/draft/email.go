package draft

import "encoding/json"

// Email has the fields of POST /v1/email/send. A blank text counts as omitted, except for fields that select how the
// email is sent. The tags name rules of package rules; New checks the other rules, such as that recipient.email equals
// to.
type Email struct {
	To        string            `json:"to" validate:"required,address" hint:"one recipient per email; cc and bcc take up to 5 more, POST /mailings a file of recipients"`
	CC        []string          `json:"cc,omitempty" validate:"entries=5,dive,omitempty,address"`
	BCC       []string          `json:"bcc,omitempty" validate:"entries=5,dive,omitempty,address"`
	Subject   string            `json:"subject" validate:"required,line,max=150"`
	HTML      string            `json:"html,omitempty" validate:"bytes=524288"` // or Text, or both
	Text      string            `json:"text,omitempty" validate:"bytes=524288"`
	AutoText  *bool             `json:"autoText,omitempty"` // false: no text part is generated from HTML
	ReplyTo   *string           `json:"replyTo,omitempty" validate:"omitnil,address"`
	From      *string           `json:"from,omitempty" validate:"omitnil,max=1000,mailbox" hint:"name and address in one, such as \"Acme <billing@acme.example>\""`
	Headers   map[string]string `json:"headers,omitempty" validate:"max=10,dive,keys,headername,unreserved,endkeys,headervalue"`
	Tags      []string          `json:"tags,omitempty" validate:"entries=5,dive,omitempty,max=64,printable"`
	Recipient *Recipient        `json:"recipient,omitempty" validate:"required"`
	Priority  *int              `json:"priority,omitempty" validate:"omitnil,min=1,max=10"`
	SendAt    *string           `json:"sendAt,omitempty" validate:"omitnil,timestamp" blank:"refused"`
	Delivery  *string           `json:"delivery,omitempty" validate:"omitnil,oneof=at_least_once at_most_once" blank:"refused"`
	Aggregate *Aggregate        `json:"aggregate,omitempty" validate:"omitnil"`
	// Attachments has at most 10 elements. The api checks and stores their contents.
	Attachments []Attachment `json:"attachments,omitempty" most:"10"`
	// Template replaces Subject, HTML and Text. The api renders it before New, which rejects it.
	Template *Template `json:"template,omitempty"`
}

// Recipient is the person at to, identified by at least one of the first four fields.
type Recipient struct {
	RecipientID *string `json:"recipientId,omitempty" validate:"omitnil,id"`
	ExternalID  *string `json:"externalId,omitempty" validate:"omitnil,min=1,max=200,line"`
	CPFCNPJ     *string `json:"cpfCnpj,omitempty" validate:"omitnil,cpfcnpj"`
	CPFCNPJHash *string `json:"cpfCnpjHash,omitempty" validate:"omitnil,taxidhash"`
	RazaoSocial string  `json:"razaoSocial,omitempty" validate:"max=200,line"`
	Nome        string  `json:"nome,omitempty" validate:"max=200,line"`
	Email       string  `json:"email,omitempty" validate:"omitempty,address"` // default: to
}

// identified reports whether the recipient has an identifier other than an address.
func (r *Recipient) identified() bool {
	return r.RecipientID != nil || r.ExternalID != nil || r.CPFCNPJ != nil || r.CPFCNPJHash != nil
}

// Aggregate names the business object of an email (type and id, such as an interview and its number) and the purpose of the
// email (event type, such as the reminder of the day before). A company has one email per aggregate and event type.
type Aggregate struct {
	Type      string `json:"type" validate:"required,max=64,name"`
	ID        string `json:"id" validate:"required,max=200,name"`
	EventType string `json:"eventType" validate:"required,max=64,name"`
}

// Template names a stored template and the data for it.
type Template struct {
	Name    string          `json:"name"`
	Locale  *string         `json:"locale,omitempty" blank:"refused"` // nil = the default
	Version *int            `json:"version,omitempty"`                // nil = the published one
	Data    json.RawMessage `json:"data,omitempty"`                   // an object
}
