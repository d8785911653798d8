package httpapi

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/google/uuid"

	"email-gateway/api/internal/attachment"
	"email-gateway/api/internal/mailing"
	"email-gateway/api/internal/strictjson"
	"email-gateway/api/internal/templates"
	"email-gateway/shared/draft"
	"email-gateway/shared/email"
	"email-gateway/shared/htmlcheck"
	"email-gateway/shared/plaintext"
	"email-gateway/shared/rules"
	"email-gateway/shared/store"
)

// recipientFinder is the part of *store.Store that checks recipients.
type recipientFinder interface {
	RecipientMatches(ctx context.Context, company, recipient uuid.UUID, address string) (bool, error)
}

// composer builds an email from a send request, or reports all its faults.
type composer struct {
	rules      *rules.Rules
	reader     *strictjson.Reader[draft.Email]
	recipients recipientFinder
	html       *htmlcheck.Checker
	turns      *mailing.Limiter // limits HTML checks so that one company leaves a slot for others
	library    *templates.Library
	files      *fileService
	taxIDs
	ttl time.Duration
}

// newTurns allows as many concurrent checks of large bodies as there are processors, and one
// more for another company.
func newTurns(processors int) (*htmlcheck.Checker, *mailing.Limiter) {
	return htmlcheck.New(processors + 1), mailing.NewLimiter(int64(processors)+1, int64(processors))
}

// compose returns an email that is ready to be accepted, except for the attachments whose contents are pending: these are
// still to be stored. An invalid request is a problem;
// other errors come from the database.
func (c *composer) compose(ctx context.Context, caller *store.Caller, requestID string, document strictjson.Document, contents *attachment.Contents) (store.NewEmail, []*attachment.Content, error) {
	request, faults := c.reader.Read(document)
	found := rules.Faults(faults)
	ref, err := c.renderTemplate(ctx, caller.CompanyID, &request, &found)
	if err != nil {
		return store.NewEmail{}, nil, err
	}
	d := draft.New(c.rules, &request, found, time.Now())
	d.CheckSender(caller.DefaultFrom, caller.SenderDomains)
	if err := c.checkDraft(ctx, caller.CompanyID, d); err != nil {
		return store.NewEmail{}, nil, err
	}
	if err := c.findRecipient(ctx, caller.CompanyID, d); err != nil {
		return store.NewEmail{}, nil, err
	}
	attached, pending, err := c.files.attach(ctx, caller.CompanyID, d, contents)
	if err != nil {
		return store.NewEmail{}, nil, err
	}
	if len(d.Faults) > 0 {
		return store.NewEmail{}, nil, invalid(d.Faults)
	}
	mail, err := c.build(caller, requestID, d)
	mail.Template, mail.Attachments = ref, attached
	return mail, pending, err
}

// htmlWait limits how long a large body waits to be checked.
const htmlWait = 10 * time.Second

// checkHTML runs a check within htmlWait. Large bodies of one company are checked one after
// the other: one of 512 KiB can take a quarter of a second.
func (c *composer) checkHTML(ctx context.Context, company uuid.UUID, html string, check func(context.Context) error) error {
	if htmlcheck.Waits(html) {
		return inTurn(ctx, c.turns, company, check)
	}
	ctx, cancel := context.WithTimeout(ctx, htmlWait)
	defer cancel()
	err := check(ctx)
	if errors.Is(err, context.DeadlineExceeded) {
		return busy
	}
	return err
}

// inTurn runs work that takes a processor for more than a few milliseconds, when the company has a turn.
func inTurn(ctx context.Context, turns *mailing.Limiter, company uuid.UUID, work func(context.Context) error) error {
	client := ctx
	ctx, cancel := context.WithTimeout(ctx, htmlWait)
	defer cancel()
	release, err := turns.Enter(ctx, company)
	switch {
	case err != nil && client.Err() != nil:
		return client.Err() // the client disconnected
	case errors.Is(err, mailing.ErrOwnLimit):
		return errCompanyBusy
	case err != nil:
		return busy
	}
	defer release()
	if err = work(ctx); errors.Is(err, context.DeadlineExceeded) {
		return busy
	}
	return err
}

// checkDraft checks the html of an email. Faults are added to d; the error is not about the html.
func (c *composer) checkDraft(ctx context.Context, company uuid.UUID, d *draft.Draft) error {
	return c.checkHTML(ctx, company, d.Email.HTML, func(ctx context.Context) error { return d.CheckHTML(ctx, c.html) })
}

// checkTemplate checks the field html of a mailing. Faults are added to f; the error is not about the template.
func (c *composer) checkTemplate(ctx context.Context, company uuid.UUID, html string, f *rules.Faults) error {
	return c.checkHTML(ctx, company, html, func(ctx context.Context) error { return draft.CheckHTML(ctx, c.html, html, f) })
}

// textOf is the text part that the worker makes from html.
func (c *composer) textOf(ctx context.Context, company uuid.UUID, html string) (text string, err error) {
	err = c.checkHTML(ctx, company, html, func(context.Context) error {
		text = plaintext.FromHTML(html)
		return nil
	})
	return text, err
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
		d.Faults.Add(field, codeRecipientNotFound, "is not a recipient of this company at this address")
	}
	return nil
}

// build requires a request without faults.
func (c *composer) build(caller *store.Caller, requestID string, d *draft.Draft) (store.NewEmail, error) {
	id, err := uuid.NewV7()
	if err != nil {
		return store.NewEmail{}, fmt.Errorf("make outbox id: %w", err)
	}
	r := d.Email
	e := store.NewEmail{
		ID:             id,
		CompanyID:      caller.CompanyID,
		RequestID:      requestID,
		Sender:         d.Sender,
		HTML:           r.HTML,
		Text:           r.Text,
		NoAutoText:     !value(r.AutoText, true),
		CheckerVersion: int(htmlcheck.Version),
		Priority:       value(r.Priority, email.DefaultPriority),
		Delivery:       email.Delivery(value(r.Delivery, string(email.AtLeastOnce))),
		SendAt:         d.SendAt,
		TTL:            c.ttl,
		CreatedAt:      timeOf(id),
		Job: email.SendJob{
			OutboxID: id.String(), CompanyID: caller.CompanyID.String(), RequestID: requestID,
			To: r.To, CC: r.CC, BCC: r.BCC, Subject: r.Subject, HTMLRef: id.String(),
			ReplyTo: value(r.ReplyTo, ""), Headers: r.Headers, Tags: r.Tags,
			Recipient: email.JobRecipient{
				RecipientID: strings.ToLower(value(r.Recipient.RecipientID, "")),
				ExternalID:  value(r.Recipient.ExternalID, ""),
				RazaoSocial: r.Recipient.RazaoSocial, Nome: r.Recipient.Nome, Email: r.To,
			},
		},
	}
	if about := r.Aggregate; about != nil {
		e.Aggregate = &store.Aggregate{Type: about.Type, ID: about.ID, EventType: about.EventType}
	}
	sum := sha256.Sum256([]byte(r.HTML))
	e.HTMLSHA256 = sum[:]
	e.Job.Recipient.CPFCNPJHash, e.CPFCNPJ, err = c.protect(caller.CompanyID, d.TaxID, r.Recipient.CPFCNPJHash)
	return e, err
}

// timeOf returns the millisecond that a UUIDv7 begins with: created_at equals it, so lists can
// be filtered by date with ids.
func timeOf(id uuid.UUID) time.Time {
	return time.Unix(id.Time().UnixTime()).UTC()
}
