package mailings

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/gin-gonic/gin"
	"github.com/google/uuid"

	"email-gateway/api/internal/csvfile"
	"email-gateway/api/internal/httpapi/accept"
	"email-gateway/api/internal/httpapi/reqctx"
	"email-gateway/api/internal/httpapi/response"
	"email-gateway/api/internal/mailing"
	"email-gateway/api/internal/strictjson"
	"email-gateway/api/internal/templates"
	"email-gateway/shared/draft"
	"email-gateway/shared/email"
	"email-gateway/shared/htmlcheck"
	"email-gateway/shared/mailmerge"
	"email-gateway/shared/rules"
	mailingstore "email-gateway/shared/store/mailing"
	"email-gateway/shared/store/outbox"
	"email-gateway/shared/unsubscribe"
	"email-gateway/shared/uuidv7"
)

// link returns the unsubscribe link of a recipient of the mailing.
func (h *Handlers) link(company, id uuid.UUID, address string) string {
	return unsubscribe.URL(h.PublicURL, h.Links.Seal(unsubscribe.Link{Company: company, Mailing: id, Address: address}))
}

// longestLink is as long as the longest link of any recipient.
func (h *Handlers) longestLink() string {
	return unsubscribe.URL(h.PublicURL, strings.Repeat("A", unsubscribe.MaxToken))
}

// compose builds a mailing from an upload, and the validator of its rows. An invalid
// request is a problem that lists every fault; other errors come from the storage.
func (h *Handlers) compose(c *gin.Context, d *mailingDraft, up upload) (mailingstore.NewMailing, *mailing.Validator, error) {
	ctx, v := c.Request.Context(), reqctx.StateOf(c)
	content, ref, err := h.content(ctx, v.Caller.CompanyID, d)
	if err != nil {
		return mailingstore.NewMailing{}, nil, err
	}
	files := draft.Draft{Email: &draft.Email{Attachments: d.files}, Faults: d.faults}
	attached, _, err := h.Attachments.Attach(ctx, v.Caller.CompanyID, &files, nil)
	if err != nil {
		return mailingstore.NewMailing{}, nil, err
	}
	d.faults, d.attached = files.Faults, attached
	reading, err := h.openFile(ctx, d, up.file)
	if err != nil {
		return mailingstore.NewMailing{}, nil, err
	}
	if reading != nil {
		defer func() { _ = reading.Close() }()
		if content != nil {
			for _, f := range content.CheckFields(reading.Header()) {
				d.faults.Add(f.Field, f.Code, f.Message)
			}
		}
	}
	if len(d.faults) > 0 {
		return mailingstore.NewMailing{}, nil, invalid(d.faults)
	}
	validator, err := mailing.NewValidator(mailing.ValidatorParams{
		Company: v.Caller.CompanyID, Header: reading.Header(), Templates: content, Ring: h.Ring, HashKey: h.HashKey,
		Tokens: h.Tokens, DryRun: d.dryRun(), RejectEmpty: d.rejectsEmpty(), Unsubscribe: h.longestLink(),
	})
	if err != nil {
		return mailingstore.NewMailing{}, nil, err
	}
	stored, err := content.Stored(reading.Header())
	if err != nil {
		return mailingstore.NewMailing{}, nil, err
	}
	m := h.build(v, d, up, stored)
	m.Answer = answerOf(&m, warningsOf(content), validator.SharedRecipients, ref)
	m.EmailColumn = validator.EmailColumn()
	if d.dryRun() {
		d.preview, err = mailing.FirstEmails(reading, validator, unsubscribe.URL(h.PublicURL, "preview"), !m.NoAutoText)
		return m, validator, fileProblem(err)
	}
	m.Tests, err = h.testEmails(v, d, &m, reading, validator)
	return m, validator, err
}

// content parses and checks what the emails are made from. Faults are added to the draft; if no
// fields can be compared with the file then, the content is nil. ref is that of a stored template.
func (h *Handlers) content(ctx context.Context, company uuid.UUID, d *mailingDraft) (content mailing.Content, ref *response.Template, err error) {
	if d.request.Template != "" {
		return h.storedContent(ctx, company, d)
	}
	readable := d.request.HTML != "" && !d.faults.Has(mailing.PartHTML)
	parsed, wrong := mailing.ParseTemplates(d.request.Subject, d.request.HTML, d.request.Text)
	for _, f := range wrong {
		d.faults.Add(f.Field, f.Code, f.Message)
	}
	if readable {
		if err := h.checkHTML(ctx, company, d, mailmerge.CheckedHTML(d.request.HTML), &d.faults); err != nil {
			return nil, nil, err
		}
	}
	return parsed, nil, nil
}

// storedContent is content for a mailing that names a template.
func (h *Handlers) storedContent(ctx context.Context, company uuid.UUID, d *mailingDraft) (mailing.Content, *response.Template, error) {
	if d.faults.Has(mailing.PartVersion) {
		return nil, nil, nil
	}
	found, wrong, err := h.Library.Find(ctx, company, templates.Use{Name: d.request.Template, Locale: d.request.Locale, Version: d.version})
	if err != nil {
		return nil, nil, err
	}
	for _, f := range wrong {
		field := mailing.PartTemplate
		if f.Field == "locale" {
			field = mailing.PartLocale
		}
		d.faults.Add(field, f.Code, f.Message)
	}
	if len(wrong) > 0 {
		return nil, nil, nil
	}
	if found.Source.HTML != "" {
		var faults rules.Faults
		if err := h.checkHTML(ctx, company, d, mailmerge.CheckedOutline(found.Source.HTML), &faults); err != nil {
			return nil, nil, err
		}
		for _, f := range faults {
			d.faults.AddEach(mailing.PartTemplate, f.Code, "has invalid HTML: "+f.Message)
		}
	}
	content := &mailing.StoredTemplate{Ref: found.Ref(), Source: found.Source, Parsed: found.Parsed}
	return content, &response.Template{Name: found.Name, Locale: found.Locale, Version: found.Version}, nil
}

// checkHTML checks what html contains and which attachments it refers to.
func (h *Handlers) checkHTML(ctx context.Context, company uuid.UUID, d *mailingDraft, body mailmerge.Checked, f *rules.Faults) error {
	err := h.HTML.CheckTemplate(ctx, company, body, f)
	if err == nil && !d.faults.Has(mailing.PartAttach) {
		draft.CheckContentIDs(d.files, body.HTML, f)
	}
	return err
}

// openFile opens the file and reads its header. Faults of the file are added to the draft.
// Without a file, or with such a fault, it returns nil.
func (h *Handlers) openFile(ctx context.Context, d *mailingDraft, f mailing.File) (*mailing.Reading, error) {
	if f.Key == "" || d.faults.Has(mailing.PartEncoding) || d.faults.Has(mailing.PartDelimiter) {
		return nil, nil
	}
	reading, err := h.files.Open(ctx, f, d.reading)
	if wrong, ok := errors.AsType[*csvfile.FileError](err); ok {
		d.faults.Add(mailing.PartFile, wrong.Code, wrong.Error())
		return nil, nil
	}
	return reading, fileProblem(err)
}

// build requires a request without faults.
func (h *Handlers) build(v *reqctx.State, d *mailingDraft, up upload, content mailing.Stored) mailingstore.NewMailing {
	file, html := up.file.Seen.SHA256, sha256.Sum256([]byte(content.HTML))
	m := mailingstore.NewMailing{
		ID: up.id, CompanyID: v.Caller.CompanyID, RequestID: v.RequestID,
		Filename: d.filename, StorageURL: up.file.URL, FileBytes: up.file.Bytes, FileSHA256: accept.Keyed(file[:], h.HashKey),
		DryRun: d.dryRun(), Held: d.held(),
		Subject: content.Subject, HTML: content.HTML, Text: content.Text, NoAutoText: d.request.AutoText == "false", Fields: content.Fields,
		Template: content.Template, Variables: content.Variables,
		HTMLSHA256: html[:], CheckerVersion: int(htmlcheck.Version),
		Sender: d.sender, ReplyTo: strictjson.Or(d.request.ReplyTo, ""), Tags: d.request.Tags, Delivery: d.delivery(), SendAt: d.sendAt,
		Attachments: d.attached,
	}
	if content.Template == "" && d.request.Subject != content.Subject {
		m.SubjectWritten = d.request.Subject
	}
	return m
}

// testEmails returns the emails to the addresses of test: the first valid row's email, each
// with its own unsubscribe link. They are ordinary emails that do not wait for the mailing.
func (h *Handlers) testEmails(v *reqctx.State, d *mailingDraft, m *mailingstore.NewMailing, reading *mailing.Reading, validator *mailing.Validator) ([]outbox.NewEmail, error) {
	if len(d.tests) == 0 {
		return nil, nil
	}
	render, err := mailing.FirstValid(reading, validator)
	switch {
	case errors.Is(err, mailing.ErrNoValidRow):
		d.faults.Add(mailing.PartTest, "NO_VALID_ROW", "has no row to render: "+err.Error())
		return nil, invalid(d.faults)
	case err != nil:
		return nil, fileProblem(err)
	}
	var tests []outbox.NewEmail
	for _, address := range d.tests {
		rendered, err := render(h.Tokens.Take(), h.link(m.CompanyID, m.ID, address))
		if err != nil {
			return nil, fmt.Errorf("render test: %w", err)
		}
		tests = append(tests, testEmail(v, m, address, rendered, h.TTL))
	}
	return tests, nil
}

func testEmail(v *reqctx.State, m *mailingstore.NewMailing, address string, rendered mailing.Rendered, ttl time.Duration) outbox.NewEmail {
	id := uuidv7.New()
	html := sha256.Sum256([]byte(rendered.HTML))
	return outbox.NewEmail{
		ID: id, CompanyID: m.CompanyID, RequestID: v.RequestID, Sender: m.Sender,
		HTML: rendered.HTML, Text: rendered.Text, NoAutoText: m.NoAutoText, Template: m.Template, HTMLSHA256: html[:], CheckerVersion: m.CheckerVersion,
		Attachments: m.Attachments,
		Priority:    email.UrgentPriority, Delivery: m.Delivery, TTL: ttl, CreatedAt: uuidv7.Time(id),
		Job: email.SendJob{
			OutboxID: id.String(), CompanyID: m.CompanyID.String(), RequestID: v.RequestID,
			To: address, Subject: rendered.Subject, HTMLRef: id.String(), ReplyTo: m.ReplyTo,
			Headers: unsubscribe.Reference(m.ID), Tags: m.Tags,
			Recipient: email.JobRecipient{ExternalID: testRecipient(address), Email: address},
		},
	}
}

// testRecipient derives an external id that distinguishes recipients of tests from the
// company's own. An address may be longer than an external id.
func testRecipient(address string) string {
	sum := sha256.Sum256([]byte(email.NormalAddress(address)))
	return "mailing-test:" + hex.EncodeToString(sum[:16])
}
