package recipients

import (
	"fmt"
	"strconv"

	"github.com/google/uuid"

	"email-gateway/api/internal/httpapi/problem"
	"email-gateway/api/internal/httpapi/taxid"
	"email-gateway/api/internal/strictjson"
	"email-gateway/shared/draft"
	"email-gateway/shared/mailbox"
	"email-gateway/shared/rules"
	"email-gateway/shared/store/recipient"
	"email-gateway/shared/uuidv7"
)

// recipientsRequest is the body of POST /v1/recipients for several recipients.
type recipientsRequest struct {
	Recipients []newRecipientRequest `json:"recipients" validate:"min=1,max=1000,dive"`
}

// newRecipientRequest is the body for one recipient. It is the recipient of a send request
// without recipientId, which the gateway derives from the other fields.
type newRecipientRequest struct {
	ExternalID  *string `json:"externalId" validate:"omitnil,min=1,max=200,line"`
	CPFCNPJ     *string `json:"cpfCnpj" validate:"omitnil,cpfcnpj"`
	CPFCNPJHash *string `json:"cpfCnpjHash" validate:"omitnil,taxidhash"`
	RazaoSocial string  `json:"razaoSocial" validate:"max=200,line"`
	Nome        string  `json:"nome" validate:"max=200,line"`
	Email       string  `json:"email" validate:"required,address"`
}

// reader builds recipients from a request, or reports all its faults.
type reader struct {
	rules *rules.Rules
	taxid.Protector
	one  *strictjson.Reader[newRecipientRequest]
	many *strictjson.Reader[recipientsRequest]
}

func newReader(checks *rules.Rules, ids taxid.Protector) (*reader, error) {
	one, err := strictjson.NewReader[newRecipientRequest]()
	if err != nil {
		return nil, fmt.Errorf("prepare recipients: %w", err)
	}
	many, err := strictjson.NewReader[recipientsRequest]()
	if err != nil {
		return nil, fmt.Errorf("prepare recipients: %w", err)
	}
	return &reader{rules: checks, Protector: ids, one: one, many: many}, nil
}

// listField is present in a body with several recipients.
const listField = "recipients"

// read returns the recipients in the order of the request. An invalid request is a problem.
func (rr *reader) read(company uuid.UUID, document strictjson.Document) ([]recipient.NewRecipient, error) {
	var (
		requests []newRecipientRequest
		faults   rules.Faults
		pathOf   = func(int) string { return "" }
	)
	if document.Has(listField) {
		list, found := rr.many.Read(document)
		requests, faults = list.Recipients, rr.rules.Check(&list, found)
		pathOf = func(i int) string { return listField + "[" + strconv.Itoa(i) + "]." }
	} else {
		single, found := rr.one.Read(document)
		requests, faults = []newRecipientRequest{single}, rr.rules.Check(&single, found)
	}
	bare := make([]string, len(requests))
	for i, r := range requests {
		bare[i] = draft.TaxID(r.CPFCNPJ, r.CPFCNPJHash, pathOf(i), &faults)
	}
	if len(faults) > 0 {
		return nil, problem.Invalid(faults)
	}
	people := make([]recipient.NewRecipient, len(requests))
	var ids uuidv7.Series // of statements about the same person, the last one wins
	for i, r := range requests {
		var err error
		if people[i], err = rr.person(ids.New(), company, r, bare[i]); err != nil {
			return nil, err
		}
	}
	return people, nil
}

// person converts a request that has no faults to a recipient of the store.
func (rr *reader) person(outboxID, company uuid.UUID, r newRecipientRequest, taxID string) (recipient.NewRecipient, error) {
	address, err := mailbox.ASCII(r.Email)
	if err != nil {
		return recipient.NewRecipient{}, fmt.Errorf("read address: %w", err)
	}
	hash, encrypted, err := rr.Protect(company, taxID, r.CPFCNPJHash)
	if err != nil {
		return recipient.NewRecipient{}, err
	}
	externalID := strictjson.Or(r.ExternalID, "")
	return recipient.NewRecipient{
		OutboxID: outboxID,
		Recipient: recipient.Recipient{
			ID:         recipient.ID(company, externalID, hash, address),
			ExternalID: externalID, CPFCNPJHash: hash, RazaoSocial: r.RazaoSocial, Nome: r.Nome, Email: address,
		},
		CPFCNPJ: encrypted,
	}, nil
}
