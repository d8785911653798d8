// Package draft validates emails by the rules of the contract: single fields, and their combinations. The worker
// accepts every valid email. The api uses it for POST /v1/email/send, and package outbox for programs that write to the
// outbox themselves.
package draft

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"email-gateway/shared/email"
	"email-gateway/shared/htmlcheck"
	"email-gateway/shared/mailbox"
	"email-gateway/shared/mailmerge"
	"email-gateway/shared/rules"
)

// CodeShowsNothing: the email would be displayed as an empty page.
const CodeShowsNothing = "SHOWS_NOTHING"

// Draft is an email being validated: its faults so far, and derived values.
type Draft struct {
	Email  *Email // valid addresses in stored form
	Faults rules.Faults

	Sender string    // From, as it is stored; set by CheckSender
	SendAt time.Time // zero = now
	TaxID  string    // a bare CPF or CNPJ; "" = none
}

// New validates everything that does not depend on the company. known are faults that were found before, such as fields
// of the wrong type.
func New(r *rules.Rules, e *Email, known rules.Faults, now time.Time) *Draft {
	e.dropBlank()
	e.dropRepeated()
	d := &Draft{Email: e, Faults: r.Check(e, known)}
	d.normalize()
	e.compact()
	if e.Template != nil {
		d.Faults.Add("template", rules.CodeNotAllowed, "is not supported here: give subject, html and text")
	}
	d.checkBody()
	d.checkRecipient()
	d.checkHeaders()
	d.checkAttachments()
	if e.SendAt != nil && !d.Faults.Has("sendAt") {
		d.SendAt = SendAt(*e.SendAt, now, &d.Faults)
	}
	return d
}

// Content validates and normalizes the subject, html and text of an email, as New does. It does not check the
// references of html to attachments. The caller must also call CheckHTML.
func Content(r *rules.Rules, subject, html, text string) *Draft {
	e := &Email{Subject: subject, HTML: html, Text: text}
	e.dropBlank()
	d := &Draft{Email: e}
	for _, f := range r.Check(e, nil) {
		if f.Field == "subject" || f.Field == "html" || f.Field == "text" {
			d.Faults = append(d.Faults, f)
		}
	}
	d.checkBody()
	return d
}

// normalize converts the addresses to stored form. It runs after the rules were applied.
func (d *Draft) normalize() {
	ascii := func(address *string) {
		if normal, err := mailbox.ASCII(*address); err == nil {
			*address = normal
		}
	}
	e := d.Email
	ascii(&e.To)
	for _, list := range [][]string{e.CC, e.BCC} {
		if tooManyAddresses(list) {
			continue
		}
		for i := range list {
			ascii(&list[i])
		}
	}
	if e.ReplyTo != nil {
		ascii(e.ReplyTo)
	}
	if e.Recipient != nil {
		if e.Recipient.Email == "" && !d.Faults.Has("recipient.email") {
			e.Recipient.Email = e.To
		}
		ascii(&e.Recipient.Email)
	}
}

// checkBody checks that the email has html or text.
func (d *Draft) checkBody() {
	if d.Email.HTML == "" && d.Email.Text == "" && !d.Faults.Has("html", "text") {
		d.Faults.Add("html", rules.CodeRequired, "is required unless text is given")
	}
}

// checkRecipient validates the combination of the recipient's fields.
func (d *Draft) checkRecipient() {
	r := d.Email.Recipient
	if r == nil || d.Faults.Has("recipient") {
		return
	}
	if !d.Faults.Has("to", "recipient.email") && !email.SameAddress(r.Email, d.Email.To) {
		d.Faults.Add("recipient.email", rules.CodeMismatch, "must be the same address as `to`, or be left out")
	}
	if !r.identified() && !d.Faults.Has("recipient.recipientId", "recipient.externalId", "recipient.cpfCnpj", "recipient.cpfCnpjHash") {
		d.Faults.Add("recipient", rules.CodeRequired, "needs recipientId, externalId, cpfCnpj or cpfCnpjHash")
	}
	d.TaxID = TaxID(r.CPFCNPJ, r.CPFCNPJHash, "recipient.", &d.Faults)
}

// checkHeaders rejects names that differ only in letter case, which JSON distinguishes and email does not. Name and
// value have separate limits, and a common one.
func (d *Draft) checkHeaders() {
	seen := make(map[string]bool, len(d.Email.Headers))
	for _, name := range slices.Sorted(maps.Keys(d.Email.Headers)) {
		lower := strings.ToLower(name)
		if seen[lower] {
			d.Faults.Add("headers."+name, rules.CodeDuplicateField, "is given twice, in different case")
		}
		seen[lower] = true
		if field := "headers." + name; len(name)+len(d.Email.Headers[name]) > rules.MaxHeader && !d.Faults.Has(field) {
			d.Faults.Add(field, rules.CodeInvalidHeader, fmt.Sprintf("name and value together must have at most %d characters", rules.MaxHeader))
		}
	}
}

// CheckSender sets Sender: the email's own From if the company may use it, or defaultSender, the company's, if
// the email has none.
func (d *Draft) CheckSender(defaultSender string, domains []string) {
	d.Sender = defaultSender
	if d.Email.From != nil && !d.Faults.Has("from") {
		d.Sender = Sender(defaultSender, domains, *d.Email.From, &d.Faults)
	}
}

// CheckHTML checks the body for forbidden content and for references to attachments that the email does not have. It returns an
// error only if ctx ended while a large body waited for a slot.
func (d *Draft) CheckHTML(ctx context.Context, checker *htmlcheck.Checker) error {
	if d.Email.HTML == "" || d.Faults.Has("html") {
		return nil
	}
	err := CheckHTML(ctx, checker, mailmerge.Checked{HTML: d.Email.HTML}, &d.Faults)
	if err == nil && !d.Faults.Has("attachments") {
		CheckContentIDs(d.Email.Attachments, d.Email.HTML, &d.Faults)
	}
	return err
}

// maxViolations is how many violations of one body are reported.
const maxViolations = 20

// CheckHTML checks the field html of a request that is not one email, such as a mailing or a stored template.
func CheckHTML(ctx context.Context, checker *htmlcheck.Checker, body mailmerge.Checked, f *rules.Faults) error {
	found, err := checker.CheckAll(ctx, body.HTML, maxViolations)
	for i, v := range found {
		if v.Line > 0 {
			written := *v
			written.Line = body.Line(v.Line)
			v = &written
		}
		message := v.Error()
		if i == maxViolations-1 {
			message += "; there may be more"
		}
		f.AddEach("html", email.CodeInvalidTemplate, message)
	}
	if err == nil && len(found) == 0 && !htmlcheck.HasVisibleContent(body.HTML) {
		f.Add("html", CodeShowsNothing, "has no visible content, such as a text or an image")
	}
	return err
}
