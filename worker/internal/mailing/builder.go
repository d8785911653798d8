package mailing

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"

	"email-gateway/shared/email"
	"email-gateway/shared/mailmerge"
	mailingstore "email-gateway/shared/store/mailing"
	"email-gateway/shared/store/recipient"
	"email-gateway/shared/template"
	"email-gateway/worker/internal/mx"
)

// Reasons for an invalid entry.
const (
	invalidSyntax = "syntax"
	invalidMX     = "mx"
)

// builder builds the emails of one mailing from its entries. Bodies are rendered when an email is
// sent; the subject is rendered here, since it is part of the task.
type builder struct {
	job            *mailingstore.Job
	subject        *mailmerge.Bound // nil if the mailing has a stored template
	stored         *template.Row    // its subject; nil = none
	positions      []int64          // in job.Fields, from 1, of the fields that the subject uses
	linked         bool             // the subject contains the unsubscribe link
	unsubscribeURL func(company, mailing uuid.UUID, address string) string
}

func newBuilder(job *mailingstore.Job, unsubscribeURL func(company, mailing uuid.UUID, address string) string) (*builder, error) {
	b := &builder{job: job, unsubscribeURL: unsubscribeURL}
	if job.Template != "" {
		parsed, err := template.ReadSubject(job.Subject, job.Variables)
		if err != nil {
			return nil, fmt.Errorf("template %s: %w", job.Template, err)
		}
		b.stored = parsed.Row(b.use(parsed.Uses(template.Named(job.Fields)).Names))
		b.linked = b.stored.Uses(mailmerge.FieldUnsubscribeURL)
		return b, nil
	}
	subject, err := mailmerge.ParseSubject(job.Subject)
	if err != nil {
		return nil, fmt.Errorf("subject: %w", err)
	}
	var missing []string
	b.linked = subject.Has(mailmerge.FieldUnsubscribeURL)
	b.subject, missing = subject.Bind(mailmerge.Place(b.use(subject.Fields())))
	if len(missing) > 0 {
		return nil, fmt.Errorf("subject: no column for %q", missing)
	}
	return b, nil
}

// use sets the positions of the fields that have these names, and returns the names in that order.
func (b *builder) use(names []string) []string {
	var used []string
	for i, name := range b.job.Fields {
		if slices.Contains(names, name) {
			b.positions = append(b.positions, int64(i)+1)
			used = append(used, name)
		}
	}
	return used
}

// emails builds an email or a reason for each pending entry.
func (b *builder) emails(entries []mailingstore.ExpandableEntry, domains map[string]mx.Result) ([]mailingstore.ExpandedEntry, error) {
	expanded := make([]mailingstore.ExpandedEntry, 0, len(entries))
	for i := range entries {
		e := &entries[i]
		if !e.Pending {
			continue
		}
		x, err := b.email(e, domains[email.DomainOf(e.Email)])
		if err != nil {
			return nil, fmt.Errorf("entry %s: %w", e.ID, err)
		}
		expanded = append(expanded, x)
	}
	return expanded, nil
}

func (b *builder) email(e *mailingstore.ExpandableEntry, domain mx.Result) (mailingstore.ExpandedEntry, error) {
	x := mailingstore.ExpandedEntry{ID: e.ID}
	if !domain.Valid {
		x.InvalidReason, x.Details = invalidMX, domain.Detail
		return x, nil
	}
	subject, err := b.render(e)
	var fault *mailmerge.ValueFault
	var rowFault *template.RowFault
	switch {
	case errors.As(err, &fault), errors.As(err, &rowFault):
		x.InvalidReason, x.Details = invalidSyntax, "subject: "+err.Error()
		return x, nil
	case err != nil:
		return x, fmt.Errorf("subject: %w", err)
	}
	x.RecipientID = recipient.ID(b.job.CompanyID, e.ExternalID, e.CPFCNPJHash, e.Email)
	x.Job = b.task(e, subject, x.RecipientID)
	if err := check(x.Job); err != nil {
		x.InvalidReason, x.Details = invalidSyntax, strings.ReplaceAll(err.Error(), "\n", "; ")
	}
	return x, nil
}

func (b *builder) render(e *mailingstore.ExpandableEntry) (string, error) {
	link := ""
	if b.linked {
		link = b.unsubscribeURL(b.job.CompanyID, b.job.ID, e.Email)
	}
	if b.stored != nil {
		made, err := b.stored.Render(template.Values{Email: e.Email, Token: e.Token, UnsubscribeURL: link, Fields: e.Fields})
		return made.Subject, err
	}
	subject, err := b.subject.AppendTo(nil, mailmerge.Values(e.Email, e.Token, e.Nome, link, e.Fields))
	return email.Part(string(subject)), err
}

// task builds the email's job. A person with a tenant identifier is identified by that, as in a
// single email, since several addresses may belong to it; otherwise by the recipient id derived
// from the address.
func (b *builder) task(e *mailingstore.ExpandableEntry, subject string, recipientID uuid.UUID) email.SendJob {
	job := email.SendJob{
		OutboxID: e.ID.String(), CompanyID: b.job.CompanyID.String(), RequestID: b.job.RequestID,
		To: e.Email, Subject: subject, HTMLRef: "mailing:" + b.job.ID.String(),
		ReplyTo: b.job.ReplyTo, Tags: b.job.Tags,
		Recipient: email.JobRecipient{
			ExternalID: e.ExternalID, CPFCNPJHash: e.CPFCNPJHash, RazaoSocial: e.RazaoSocial, Nome: e.Nome, Email: e.Email,
		},
	}
	if e.ExternalID == "" && e.CPFCNPJHash == "" {
		job.Recipient.RecipientID = recipientID.String()
	}
	return job
}

// check makes the worker's first validation, with the values that the dispatcher will set.
func check(job email.SendJob) error {
	job.Attempt, job.EnqueuedAt = 1, time.Now()
	return job.Validate(1)
}
