package mailing

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/google/uuid"

	"email-gateway/shared/email"
	"email-gateway/shared/mailmerge"
	"email-gateway/shared/store"
	"email-gateway/worker/internal/mx"
)

// Why an entry is invalid.
const (
	invalidSyntax = "syntax"
	invalidMX     = "mx"
)

// letter makes the emails of one mailing from its entries. Bodies are rendered when an
// email is sent; the subject is rendered here, since it stands in the task.
type letter struct {
	job            *store.MailingJob
	subject        *mailmerge.Bound
	linked         bool // the subject holds the unsubscribe link
	unsubscribeURL func(company, mailing uuid.UUID, address string) string
}

func newLetter(job *store.MailingJob, unsubscribeURL func(company, mailing uuid.UUID, address string) string) (*letter, error) {
	template, err := mailmerge.ParseSubject(job.Subject)
	if err != nil {
		return nil, fmt.Errorf("subject: %w", err)
	}
	l := &letter{job: job, unsubscribeURL: unsubscribeURL}
	var missing []string
	l.linked = template.Has(mailmerge.FieldUnsubscribeURL)
	l.subject, missing = template.Bind(mailmerge.Place(job.Fields))
	if len(missing) > 0 {
		return nil, fmt.Errorf("subject: no column for %q", missing)
	}
	return l, nil
}

// emails decides about each entry that is pending.
func (l *letter) emails(entries []store.ExpandableEntry, verdicts map[string]mx.Verdict) ([]store.ExpandedEntry, error) {
	expanded := make([]store.ExpandedEntry, 0, len(entries))
	for i := range entries {
		e := &entries[i]
		if !e.Pending {
			continue
		}
		x, err := l.email(e, verdicts[email.DomainOf(e.Email)])
		if err != nil {
			return nil, fmt.Errorf("entry %s: %w", e.ID, err)
		}
		expanded = append(expanded, x)
	}
	return expanded, nil
}

func (l *letter) email(e *store.ExpandableEntry, domain mx.Verdict) (store.ExpandedEntry, error) {
	x := store.ExpandedEntry{ID: e.ID}
	if !domain.Valid {
		x.InvalidReason, x.Details = invalidMX, domain.Detail
		return x, nil
	}
	subject, err := l.render(e)
	var fault *mailmerge.ValueFault
	switch {
	case errors.As(err, &fault):
		x.InvalidReason, x.Details = invalidSyntax, "subject: "+fault.Error()
		return x, nil
	case err != nil:
		return x, fmt.Errorf("subject: %w", err)
	}
	x.RecipientID = store.RecipientID(l.job.CompanyID, e.ExternalID, e.CPFCNPJHash, e.Email)
	x.Job = l.task(e, subject, x.RecipientID)
	if err := check(x.Job); err != nil {
		x.InvalidReason, x.Details = invalidSyntax, strings.ReplaceAll(err.Error(), "\n", "; ")
	}
	return x, nil
}

func (l *letter) render(e *store.ExpandableEntry) (string, error) {
	link := ""
	if l.linked {
		link = l.unsubscribeURL(l.job.CompanyID, l.job.ID, e.Email)
	}
	subject, err := l.subject.AppendTo(nil, mailmerge.Values(e.Email, e.Token, e.Nome, link, e.Fields))
	return string(subject), err
}

// task is the email's job. A person with an identifier of the tenant's is named by
// that, as in a single email, since several addresses may belong to it; one without is
// named by the id that belongs to the address.
func (l *letter) task(e *store.ExpandableEntry, subject string, recipient uuid.UUID) email.SendJob {
	job := email.SendJob{
		OutboxID: e.ID.String(), CompanyID: l.job.CompanyID.String(), RequestID: l.job.RequestID,
		To: e.Email, Subject: subject, HTMLRef: "mailing:" + l.job.ID.String(),
		ReplyTo: l.job.ReplyTo, Tags: l.job.Tags,
		Recipient: email.JobRecipient{
			ExternalID: e.ExternalID, CPFCNPJHash: e.CPFCNPJHash, RazaoSocial: e.RazaoSocial, Nome: e.Nome, Email: e.Email,
		},
	}
	if e.ExternalID == "" && e.CPFCNPJHash == "" {
		job.Recipient.RecipientID = recipient.String()
	}
	return job
}

// check is what the worker will check first, with what the dispatcher will fill in.
func check(job email.SendJob) error {
	job.Attempt, job.EnqueuedAt = 1, time.Now()
	return job.Validate(1)
}
