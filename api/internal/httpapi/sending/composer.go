package sending

import (
	"context"
	"crypto/sha256"
	"fmt"
	"strings"
	"time"

	"github.com/google/uuid"

	"email-gateway/api/internal/attachment"
	"email-gateway/api/internal/httpapi/compose"
	"email-gateway/api/internal/httpapi/problem"
	"email-gateway/api/internal/httpapi/taxid"
	"email-gateway/api/internal/strictjson"
	"email-gateway/api/internal/templates"
	"email-gateway/shared/draft"
	"email-gateway/shared/email"
	"email-gateway/shared/htmlcheck"
	"email-gateway/shared/rules"
	"email-gateway/shared/store/outbox"
	"email-gateway/shared/store/tenant"
	"email-gateway/shared/uuidv7"
)

// recipientFinder is the part of Store that checks recipients.
type recipientFinder interface {
	RecipientMatches(ctx context.Context, company, recipient uuid.UUID, address string) (bool, error)
}

// composer builds an email from a send request, or reports all its faults.
type composer struct {
	rules      *rules.Rules
	reader     *strictjson.Reader[draft.Email]
	recipients recipientFinder
	html       *compose.Checker
	library    *templates.Library
	files      *compose.Files
	taxid.Protector
	ttl   time.Duration
	newID func() uuid.UUID
}

// forBatch returns a composer for the items of one batch, whose ids are in the order of the items. It is not safe for
// concurrent use.
func (c *composer) forBatch() *composer {
	b := *c
	b.library = c.library.ForBatch()
	var ids uuidv7.Series
	b.newID = ids.New
	return &b
}

// compose returns an email that is ready to be accepted, except for the attachments whose contents are pending: these are
// still to be stored. An invalid request is a problem;
// other errors come from the database.
func (c *composer) compose(ctx context.Context, caller *tenant.Caller, requestID string, document strictjson.Document, contents *attachment.Contents) (outbox.NewEmail, []*attachment.Content, error) {
	request, faults := c.reader.Read(document)
	found := rules.Faults(faults)
	ref, err := c.renderTemplate(ctx, caller.CompanyID, &request, &found)
	if err != nil {
		return outbox.NewEmail{}, nil, err
	}
	d := draft.New(c.rules, &request, found, time.Now())
	d.CheckSender(caller.DefaultFrom, caller.SenderDomains)
	if err := c.html.CheckDraft(ctx, caller.CompanyID, d); err != nil {
		return outbox.NewEmail{}, nil, err
	}
	if err := c.findRecipient(ctx, caller.CompanyID, d); err != nil {
		return outbox.NewEmail{}, nil, err
	}
	attached, pending, err := c.files.Attach(ctx, caller.CompanyID, d, contents)
	if err != nil {
		return outbox.NewEmail{}, nil, err
	}
	if len(d.Faults) > 0 {
		return outbox.NewEmail{}, nil, problem.Invalid(d.Faults)
	}
	mail, err := c.build(caller, requestID, d)
	mail.Template, mail.Attachments = ref, attached
	return mail, pending, err
}

// findRecipient checks that a recipientId belongs to the company and has the address.
func (c *composer) findRecipient(ctx context.Context, company uuid.UUID, d *draft.Draft) error {
	const field = "recipient.recipientId"
	if d.Email.Recipient == nil || d.Email.Recipient.RecipientID == nil || d.Faults.Has(field, "to") {
		return nil
	}
	id, err := rules.ParseID(*d.Email.Recipient.RecipientID)
	if err != nil {
		return fmt.Errorf("read recipientId: %w", err)
	}
	matches, err := c.recipients.RecipientMatches(ctx, company, id, d.Email.To)
	if err != nil {
		return err
	}
	if !matches {
		d.Faults.Add(field, problem.CodeRecipientNotFound, "is not a recipient of this company at this address")
	}
	return nil
}

// build requires a request without faults.
func (c *composer) build(caller *tenant.Caller, requestID string, d *draft.Draft) (outbox.NewEmail, error) {
	id := c.newID()
	r := d.Email
	e := outbox.NewEmail{
		ID:             id,
		CompanyID:      caller.CompanyID,
		RequestID:      requestID,
		Sender:         d.Sender,
		HTML:           r.HTML,
		Text:           r.Text,
		NoAutoText:     !strictjson.Or(r.AutoText, true),
		CheckerVersion: int(htmlcheck.Version),
		Priority:       strictjson.Or(r.Priority, email.DefaultPriority),
		Delivery:       email.Delivery(strictjson.Or(r.Delivery, string(email.AtLeastOnce))),
		SendAt:         d.SendAt,
		TTL:            c.ttl,
		CreatedAt:      uuidv7.Time(id),
		Job: email.SendJob{
			OutboxID: id.String(), CompanyID: caller.CompanyID.String(), RequestID: requestID,
			To: r.To, CC: r.CC, BCC: r.BCC, Subject: r.Subject, HTMLRef: id.String(),
			ReplyTo: strictjson.Or(r.ReplyTo, ""), Headers: r.Headers, Tags: r.Tags,
			Recipient: email.JobRecipient{
				RecipientID: strings.ToLower(strictjson.Or(r.Recipient.RecipientID, "")),
				ExternalID:  strictjson.Or(r.Recipient.ExternalID, ""),
				RazaoSocial: r.Recipient.RazaoSocial, Nome: r.Recipient.Nome, Email: r.To,
			},
		},
	}
	if about := r.Aggregate; about != nil {
		e.Aggregate = &outbox.Aggregate{Type: about.Type, ID: about.ID, EventType: about.EventType}
	}
	sum := sha256.Sum256([]byte(r.HTML))
	e.HTMLSHA256 = sum[:]
	var err error
	e.Job.Recipient.CPFCNPJHash, e.CPFCNPJ, err = c.Protect(caller.CompanyID, d.TaxID, r.Recipient.CPFCNPJHash)
	return e, err
}
