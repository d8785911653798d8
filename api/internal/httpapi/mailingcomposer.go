package httpapi

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
	"email-gateway/api/internal/mailing"
	"email-gateway/shared/email"
	"email-gateway/shared/htmlcheck"
	"email-gateway/shared/store"
	"email-gateway/shared/unsubscribe"
)

// mailingIntake is what mailings need beyond what every request needs.
type mailingIntake struct {
	vault     mailing.Vault
	tokens    mailing.TokenSource
	links     unsubscribe.Keys
	publicURL string
	forms     *mailing.Gate
	uploads   *mailing.Gate
	ingests   *mailing.Gate
	pace      pace
	open      *openUploads
}

// link is where a recipient of the mailing takes leave of it.
func (i *mailingIntake) link(company, id uuid.UUID, address string) string {
	return unsubscribe.URL(i.publicURL, i.links.Seal(unsubscribe.Link{Company: company, Mailing: id, Address: address}))
}

// longestLink is as long as any recipient's.
func (i *mailingIntake) longestLink() string {
	return unsubscribe.URL(i.publicURL, strings.Repeat("A", unsubscribe.MaxToken))
}

// composeMailing makes a mailing of an upload, and the judge of its rows. A request
// that is wrong is a problem that names every fault; other errors are the storage's.
func (a *API) composeMailing(c *gin.Context, d *mailingDraft, up upload) (store.NewMailing, *mailing.Judge, error) {
	ctx, v := c.Request.Context(), visitOf(c)
	readable := !d.faults.Has(mailing.PartHTML)
	letter, wrong := mailing.ParseLetter(d.request.Subject, d.request.HTML, d.request.Text)
	for _, f := range wrong {
		d.faults.Add(f.Field, f.Code, f.Message)
	}
	if readable {
		html := d.request.HTML
		if letter.HTML != nil {
			html = letter.Stored().HTML // in which no default can be taken for markup
		}
		if err := a.composer.checkTemplate(ctx, v.caller.CompanyID, html, &d.faults); err != nil {
			return store.NewMailing{}, nil, err
		}
	}
	reading, err := a.openFile(ctx, d, up.file)
	if err != nil {
		return store.NewMailing{}, nil, err
	}
	if reading != nil {
		defer func() { _ = reading.Close() }()
		for _, f := range letter.CheckFields(reading.Header()) {
			d.faults.Add(f.Field, f.Code, f.Message)
		}
	}
	if len(d.faults) > 0 {
		return store.NewMailing{}, nil, invalidMailing(d.faults)
	}
	judge, err := mailing.NewJudge(mailing.JudgeParams{
		Company: v.caller.CompanyID, Header: reading.Header(), Letter: letter, Ring: a.composer.ring, HashKey: a.composer.hashKey,
		Tokens: a.mailings.tokens, DryRun: d.dryRun(), RejectEmpty: d.rejectsEmpty(), Unsubscribe: a.mailings.longestLink(),
	})
	if err != nil {
		return store.NewMailing{}, nil, err
	}
	m := a.buildMailing(v, d, up, letter.Stored())
	m.Answer = answerOf(&m, warningsOf(letter))
	m.EmailColumn = reading.Header().Columns()[reading.Header().Email]
	if d.dryRun() {
		d.preview, err = mailing.FirstEmails(reading, judge, unsubscribe.URL(a.mailings.publicURL, "preview"))
		return m, judge, fileProblem(err)
	}
	m.Tests, err = a.testEmails(v, d, &m, reading, judge)
	return m, judge, err
}

// openFile opens the file to see its header. What is wrong with it is a fault of the
// draft's; without a file, or with such a fault, there is nothing to read.
func (a *API) openFile(ctx context.Context, d *mailingDraft, f mailing.File) (*mailing.Reading, error) {
	if f.Key == "" || d.faults.Has(mailing.PartEncoding) || d.faults.Has(mailing.PartDelimiter) {
		return nil, nil
	}
	reading, err := a.mailings.vault.Open(ctx, f, d.reading)
	if wrong, ok := errors.AsType[*csvfile.FileError](err); ok {
		d.faults.Add(mailing.PartFile, wrong.Code, wrong.Error())
		return nil, nil
	}
	return reading, fileProblem(err)
}

// buildMailing assumes a request without faults.
func (a *API) buildMailing(v *visit, d *mailingDraft, up upload, letter mailing.Stored) store.NewMailing {
	file, html := up.file.Seen.SHA256, sha256.Sum256([]byte(letter.HTML))
	m := store.NewMailing{
		ID: up.id, CompanyID: v.caller.CompanyID, RequestID: v.requestID,
		Filename: d.filename, StorageURL: up.file.URL, FileBytes: up.file.Bytes, FileSHA256: keyed(file[:], a.composer.hashKey),
		DryRun: d.dryRun(), Held: d.held(),
		Subject: letter.Subject, HTML: letter.HTML, Text: letter.Text, Fields: letter.Fields,
		HTMLSHA256: html[:], CheckerVersion: int(htmlcheck.Version),
		Sender: d.sender, ReplyTo: value(d.request.ReplyTo, ""), Tags: d.request.Tags, Delivery: d.delivery(), SendAt: d.sendAt,
	}
	if d.request.Subject != letter.Subject {
		m.SubjectWritten = d.request.Subject
	}
	return m
}

// testEmails are what the addresses of test get: the first good row's email, with an
// unsubscribe link of their own. It is an email like any other, which does not wait
// for the mailing.
func (a *API) testEmails(v *visit, d *mailingDraft, m *store.NewMailing, reading *mailing.Reading, judge *mailing.Judge) ([]store.NewEmail, error) {
	if len(d.tests) == 0 {
		return nil, nil
	}
	render, err := mailing.FirstGood(reading, judge)
	switch {
	case errors.Is(err, mailing.ErrNoGoodRow):
		d.faults.Add(mailing.PartTest, "NO_VALID_ROW", "has nothing to show: "+err.Error())
		return nil, invalidMailing(d.faults)
	case err != nil:
		return nil, fileProblem(err)
	}
	var tests []store.NewEmail
	for _, address := range d.tests {
		link := a.mailings.link(m.CompanyID, m.ID, address)
		letter, err := render(a.mailings.tokens.Take(), link)
		if err != nil {
			return nil, fmt.Errorf("render test: %w", err)
		}
		test, err := testEmail(v, m, address, link, letter, a.ttl)
		if err != nil {
			return nil, err
		}
		tests = append(tests, test)
	}
	return tests, nil
}

func testEmail(v *visit, m *store.NewMailing, address, link string, letter mailing.Rendered, ttl time.Duration) (store.NewEmail, error) {
	id, err := uuid.NewV7()
	if err != nil {
		return store.NewEmail{}, fmt.Errorf("make outbox id: %w", err)
	}
	html := sha256.Sum256([]byte(letter.HTML))
	return store.NewEmail{
		ID: id, CompanyID: m.CompanyID, RequestID: v.requestID, Sender: m.Sender,
		HTML: letter.HTML, Text: letter.Text, HTMLSHA256: html[:], CheckerVersion: m.CheckerVersion,
		Priority: email.UrgentPriority, Delivery: m.Delivery, TTL: ttl, CreatedAt: timeOf(id),
		Job: email.SendJob{
			OutboxID: id.String(), CompanyID: m.CompanyID.String(), RequestID: v.requestID,
			To: address, Subject: letter.Subject, HTMLRef: id.String(), ReplyTo: m.ReplyTo,
			Headers: unsubscribe.Headers(link), Tags: m.Tags,
			Recipient: email.JobRecipient{ExternalID: testRecipient(address), Email: address},
		},
	}, nil
}

// testRecipient tells the readers of tests from the company's own recipients. An
// address may be longer than an external id.
func testRecipient(address string) string {
	sum := sha256.Sum256([]byte(email.NormalAddress(address)))
	return "mailing-test:" + hex.EncodeToString(sum[:16])
}
