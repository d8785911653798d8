package httpapi

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"net/mail"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"

	"email-gateway/api/internal/keyring"
	"email-gateway/api/internal/strictjson"
	"email-gateway/shared/email"
	"email-gateway/shared/htmlcheck"
	"email-gateway/shared/store"
)

// recipientFinder knows the recipients. *store.Store is one.
type recipientFinder interface {
	RecipientMatches(ctx context.Context, company, recipient uuid.UUID, address string) (bool, error)
}

// composer makes an email of a send request, or says everything that is wrong with it.
type composer struct {
	reader     *strictjson.Reader[sendRequest]
	rules      *rules
	recipients recipientFinder
	html       *htmlcheck.Checker
	ring       keyring.Ring
	hashKey    []byte
	ttl        time.Duration
}

func newComposer(recipients recipientFinder, html *htmlcheck.Checker, ring keyring.Ring, hashKey []byte, ttl time.Duration) (*composer, error) {
	reader, errReader := strictjson.NewReader[sendRequest]()
	rules, errRules := newRules()
	return &composer{
		reader: reader, rules: rules, recipients: recipients, html: html, ring: ring, hashKey: hashKey, ttl: ttl,
	}, errors.Join(errReader, errRules)
}

// compose returns an email that is ready to be accepted. A request that is wrong is
// a problem; other errors are the database's.
func (c *composer) compose(ctx context.Context, caller *store.Caller, requestID string, document strictjson.Document) (store.NewEmail, error) {
	request, found := c.reader.Read(document)
	wrong := c.rules.check(&request, found)
	d := draft{request: &request, faults: wrong, now: time.Now()}
	d.normalize()
	d.checkSender(caller)
	d.checkRecipient()
	d.checkHeaders()
	d.checkSendAt()
	if err := c.checkHTML(ctx, &d); err != nil {
		return store.NewEmail{}, err
	}
	if err := c.findRecipient(ctx, caller.CompanyID, &d); err != nil {
		return store.NewEmail{}, err
	}
	if len(d.faults) > 0 {
		return store.NewEmail{}, invalid(d.faults)
	}
	return c.build(caller, requestID, &d)
}

// htmlWait is how long a large body may wait for its turn to be checked.
const htmlWait = 10 * time.Second

func (c *composer) checkHTML(ctx context.Context, d *draft) error {
	if d.faults.has("html") {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, htmlWait)
	defer cancel()
	err := c.html.Check(ctx, d.request.HTML)
	var violation *htmlcheck.Violation
	switch {
	case errors.As(err, &violation):
		d.faults.add("html", codeInvalidTemplate, violation.Error())
	case errors.Is(err, context.DeadlineExceeded):
		return busy
	case err != nil:
		return err
	}
	return nil
}

// findRecipient asks whether a recipientId is the company's and lives at the address.
func (c *composer) findRecipient(ctx context.Context, company uuid.UUID, d *draft) error {
	const field = "recipient.recipientId"
	if d.request.Recipient == nil || d.request.Recipient.RecipientID == nil || d.faults.has(field) || d.faults.has("to") {
		return nil
	}
	id, err := parseID(*d.request.Recipient.RecipientID)
	if err != nil {
		return fmt.Errorf("read recipientId: %w", err)
	}
	matches, err := c.recipients.RecipientMatches(ctx, company, id, d.request.To)
	if err != nil {
		return err
	}
	if !matches {
		d.faults.add(field, codeRecipientNotFound, "is not a recipient of this company at this address")
	}
	return nil
}

// build assumes a request without faults.
func (c *composer) build(caller *store.Caller, requestID string, d *draft) (store.NewEmail, error) {
	id, err := uuid.NewV7()
	if err != nil {
		return store.NewEmail{}, fmt.Errorf("make outbox id: %w", err)
	}
	r := d.request
	e := store.NewEmail{
		ID:             id,
		CompanyID:      caller.CompanyID,
		RequestID:      requestID,
		Sender:         d.sender,
		HTML:           r.HTML,
		Text:           r.Text,
		CheckerVersion: int(htmlcheck.Version),
		Priority:       value(r.Priority, email.DefaultPriority),
		Delivery:       email.Delivery(value(r.Delivery, string(email.AtLeastOnce))),
		SendAt:         d.sendAt,
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
	sum := sha256.Sum256([]byte(r.HTML))
	e.HTMLSHA256 = sum[:]
	switch {
	case d.taxID != "":
		e.Job.Recipient.CPFCNPJHash = email.HashTaxID(d.taxID, c.hashKey)
		if e.CPFCNPJ, err = c.ring.Seal(caller.CompanyID, d.taxID); err != nil {
			return store.NewEmail{}, fmt.Errorf("encrypt cpfCnpj: %w", err)
		}
	case r.Recipient.CPFCNPJHash != nil:
		e.Job.Recipient.CPFCNPJHash = email.KeyTaxIDHash(*r.Recipient.CPFCNPJHash, c.hashKey)
	}
	return e, nil
}

// timeOf is the millisecond that a UUIDv7 begins with: what created_at says, the id
// says too, and a list by date can go by ids.
func timeOf(id uuid.UUID) time.Time {
	return time.Unix(id.Time().UnixTime()).UTC()
}

// draft is a request on its way to an email: what is wrong with it so far, and what
// was worked out.
type draft struct {
	request *sendRequest
	faults  faults
	now     time.Time

	sender string    // From, as it is stored
	sendAt time.Time // zero = now
	taxID  string    // bare; "" = none
}

// normalize brings the addresses into stored form. The rules have looked at them.
func (d *draft) normalize() {
	ascii := func(address *string) {
		if normal, err := asciiAddress(*address); err == nil {
			*address = normal
		}
	}
	r := d.request
	ascii(&r.To)
	for _, list := range [][]string{r.CC, r.BCC} {
		for i := range list {
			ascii(&list[i])
		}
	}
	if r.ReplyTo != nil {
		ascii(r.ReplyTo)
	}
	if r.Recipient != nil {
		ascii(&r.Recipient.Email)
	}
}

// checkSender: the company's default sender, or an address of one of its domains.
func (d *draft) checkSender(caller *store.Caller) {
	d.sender = caller.DefaultFrom
	if d.request.From == nil || d.faults.has("from") {
		return
	}
	from, err := parseMailbox(*d.request.From)
	if err != nil {
		d.faults.add("from", email.CodeInvalidEmail, err.Error())
		return
	}
	allowed := slices.Contains(caller.SenderDomains, email.DomainOf(from.Address))
	if usual, err := mail.ParseAddress(caller.DefaultFrom); err == nil && email.SameAddress(usual.Address, from.Address) {
		allowed = true
	}
	if !allowed {
		d.faults.add("from", codeSenderNotAllowed, "is neither the company's default sender nor of a domain registered for it")
		return
	}
	d.sender = writeMailbox(from)
}

// checkRecipient: the fields of the recipient as they stand to each other.
func (d *draft) checkRecipient() {
	r := d.request.Recipient
	if r == nil || d.faults.has("recipient") {
		return
	}
	if !d.faults.has("to") && !d.faults.has("recipient.email") && !email.SameAddress(r.Email, d.request.To) {
		d.faults.add("recipient.email", "MISMATCH", "must be equal to to")
	}
	if !r.identified() && !d.anyFault("recipient.recipientId", "recipient.externalId", "recipient.cpfCnpj", "recipient.cpfCnpjHash") {
		d.faults.add("recipient", "REQUIRED", "needs recipientId, externalId, cpfCnpj or cpfCnpjHash")
	}
	if r.CPFCNPJ == nil || d.faults.has("recipient.cpfCnpj") {
		return
	}
	bare, err := email.ParseTaxID(*r.CPFCNPJ)
	if err != nil {
		d.faults.add("recipient.cpfCnpj", "INVALID_CPF_CNPJ", err.Error())
		return
	}
	d.taxID = bare
	if r.CPFCNPJHash != nil && email.HashTaxID(bare, nil) != *r.CPFCNPJHash {
		d.faults.add("recipient.cpfCnpjHash", "MISMATCH", "is not the SHA-256 of cpfCnpj")
	}
}

func (d *draft) anyFault(fields ...string) bool { return slices.ContainsFunc(fields, d.faults.has) }

// checkHeaders: JSON tells x-foo from X-Foo, mail does not.
func (d *draft) checkHeaders() {
	seen := make(map[string]bool, len(d.request.Headers))
	for name := range d.request.Headers {
		lower := strings.ToLower(name)
		if seen[lower] {
			d.faults.add("headers."+name, strictjson.CodeDuplicateField, "stands here twice, in different case")
		}
		seen[lower] = true
	}
}

// checkSendAt: within a year; a time that has passed means now.
func (d *draft) checkSendAt() {
	if d.request.SendAt == nil || d.faults.has("sendAt") {
		return
	}
	at, err := parseTime(*d.request.SendAt)
	switch {
	case err != nil:
		d.faults.add("sendAt", "INVALID_TIMESTAMP", err.Error())
	case at.After(d.now.AddDate(1, 0, 0)):
		d.faults.add("sendAt", "OUT_OF_RANGE", "must be within a year")
	case at.After(d.now):
		d.sendAt = at.UTC()
	}
}
