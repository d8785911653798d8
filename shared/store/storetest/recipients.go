package storetest

import (
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"email-gateway/shared/store/recipient"
)

// NewRecipients returns a request that imports the recipients, with new ids.
func NewRecipients(company uuid.UUID, people ...recipient.NewRecipient) recipient.NewRecipients {
	for i := range people {
		r := &people[i]
		r.OutboxID = uuid.Must(uuid.NewV7())
		r.ID = recipient.ID(company, r.ExternalID, r.CPFCNPJHash, r.Email)
	}
	return recipient.NewRecipients{CompanyID: company, RequestID: "req-1", CreatedAt: time.Now(), Recipients: people}
}

// KnownRecipient returns a recipient with an external id.
func KnownRecipient(externalID, address, nome string) recipient.NewRecipient {
	return recipient.NewRecipient{Recipient: recipient.Recipient{ExternalID: externalID, Email: address, Nome: nome}}
}

// HashOf returns a CPF/CNPJ hash that consists of one repeated digit.
func HashOf(digit byte) string { return strings.Repeat(string(digit), 64) }

// Intake accepts recipients in one request and returns their outbox ids.
func Intake(tb testing.TB, d Database, company uuid.UUID, people ...recipient.NewRecipient) []uuid.UUID {
	tb.Helper()
	n := NewRecipients(company, people...)
	if err := d.Store.AcceptRecipients(tb.Context(), n); err != nil {
		tb.Fatal(err)
	}
	ids := make([]uuid.UUID, len(n.Recipients))
	for i, r := range n.Recipients {
		ids[i] = r.OutboxID
	}
	return ids
}

// Upsert applies imports of recipients, all of which must pass.
func Upsert(tb testing.TB, d Database, ids ...uuid.UUID) {
	tb.Helper()
	for i, err := range d.Store.UpsertRecipients(tb.Context(), ids) {
		if err != nil {
			tb.Errorf("%d: %v", i, err)
		}
	}
}

// RecipientRow returns a recipient's row in one line.
func RecipientRow(tb testing.TB, d Database, company uuid.UUID, externalID string) string {
	tb.Helper()
	return Ask[string](tb, d, `SELECT concat_ws('|', external_id, left(cpf_cnpj_hash, 2), convert_from(cpf_cnpj_enc, 'UTF8'), razao_social, nome, email, deleted_at IS NULL)
		FROM recipients WHERE id = $1 AND company_id = $2`, recipient.ID(company, externalID, "", ""), company)
}
