package outbox

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"
	"unicode/utf8"

	"email-gateway/shared/draft"
	"email-gateway/shared/email"
	"email-gateway/shared/mailbox"
	"email-gateway/shared/rules"
)

// check validates the email. It returns the stored form and the due time, or an *InvalidError.
func (o *Outbox) check(ctx context.Context, about Aggregate, e Email) (body []byte, sendAt time.Time, err error) {
	now := time.Now()
	request := e.draft(about)
	d := draft.New(o.rules, request, encodingFaults(request), now)
	if err := d.CheckHTML(ctx, o.html); err != nil {
		return nil, time.Time{}, err
	}
	sendAt = draft.Due(e.SendAt, now, &d.Faults)
	if code, message := o.rules.CheckOne(e.RequestID, "omitempty,requestid"); code != "" {
		d.Faults.Add("requestId", code, message)
	}
	if request.From != nil && !d.Faults.Has("from") {
		from, err := mailbox.Parse(*request.From)
		if err != nil {
			return nil, time.Time{}, fmt.Errorf("read from: %w", err)
		}
		header, err := mailbox.Header(from)
		if err != nil {
			d.Faults.Add("from", rules.CodeTooLong, err.Error())
		}
		request.From = &header
	}
	if len(d.Faults) > 0 {
		return nil, time.Time{}, &InvalidError{Faults: d.Faults}
	}
	if hash := request.Recipient.CPFCNPJHash; hash != nil {
		request.Recipient.CPFCNPJHash = given(email.KeyTaxIDHash(*hash, o.hashKey))
	}
	request.Aggregate = nil // Enqueue passes it separately
	if body, err = json.Marshal(request); err != nil {
		return nil, time.Time{}, fmt.Errorf("encode email: %w", err)
	}
	return body, sendAt, nil
}

// checkMove is check for a Reschedule.
func (o *Outbox) checkMove(about Aggregate, sendAt time.Time) (time.Time, error) {
	faults := o.checkNames(about)
	due := draft.Due(sendAt, time.Now(), &faults)
	if len(faults) > 0 {
		return time.Time{}, &InvalidError{Faults: faults}
	}
	return due, nil
}

// checkCancel is check for a Cancel.
func (o *Outbox) checkCancel(about Aggregate) error {
	if about.EventType == "" {
		about.EventType = "any"
	}
	if faults := o.checkNames(about); len(faults) > 0 {
		return &InvalidError{Faults: faults}
	}
	return nil
}

// names wraps an Aggregate for the validation without an email, so that faults have the same field names.
type names struct {
	Aggregate draft.Aggregate `json:"aggregate"`
}

func (o *Outbox) checkNames(about Aggregate) rules.Faults {
	return o.rules.Check(&names{draft.Aggregate{Type: about.Type, ID: about.ID, EventType: about.EventType}}, nil)
}

// encodingFaults reports texts that JSON cannot carry unchanged: invalid UTF-8 would be replaced
// silently, and Postgres cannot store U+0000.
func encodingFaults(e *draft.Email) (faults rules.Faults) {
	look := func(field string, texts ...string) {
		for _, text := range texts {
			if !utf8.ValidString(text) || strings.ContainsRune(text, 0) {
				faults.Add(field, rules.CodeBadCharacter, "must be UTF-8 without the character U+0000")
			}
		}
	}
	look("to", e.To)
	look("cc", e.CC...)
	look("bcc", e.BCC...)
	look("subject", e.Subject)
	look("html", e.HTML)
	look("text", e.Text)
	look("tags", e.Tags...)
	for name, value := range e.Headers {
		look("headers", name, value)
	}
	for field, text := range map[string]*string{
		"replyTo": e.ReplyTo, "from": e.From, "recipient.externalId": e.Recipient.ExternalID,
		"recipient.razaoSocial": &e.Recipient.RazaoSocial, "recipient.nome": &e.Recipient.Nome, "recipient.email": &e.Recipient.Email,
	} {
		if text != nil {
			look(field, *text)
		}
	}
	return faults
}
