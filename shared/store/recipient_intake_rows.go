package store

import (
	_ "embed"
	"encoding/json"
	"fmt"
	"time"

	"github.com/google/uuid"

	"email-gateway/shared/email"
)

// intakePayload is what the outbox row of an intake holds: everything but the number,
// which stands encrypted in a column of its own.
type intakePayload struct {
	ID          uuid.UUID `json:"id"`
	ExternalID  string    `json:"externalId,omitempty"`
	CPFCNPJHash string    `json:"cpfCnpjHash,omitempty"`
	RazaoSocial string    `json:"razaoSocial,omitempty"`
	Nome        string    `json:"nome,omitempty"`
	Email       string    `json:"email"`
	Traceparent string    `json:"traceparent,omitempty"` // for the dispatcher
}

// intakeRow is a recipient of a request, and what its outbox row holds.
type intakeRow struct {
	NewRecipient
	payload []byte
}

func intakeRows(n NewRecipients) ([]intakeRow, error) {
	rows := make([]intakeRow, len(n.Recipients))
	for i, r := range n.Recipients {
		payload, err := json.Marshal(intakePayload{
			ID: r.ID, ExternalID: r.ExternalID, CPFCNPJHash: r.CPFCNPJHash,
			RazaoSocial: r.RazaoSocial, Nome: r.Nome, Email: r.Email, Traceparent: n.Traceparent,
		})
		if err != nil {
			return nil, fmt.Errorf("encode recipient: %w", err)
		}
		rows[i] = intakeRow{r, payload}
	}
	return rows, nil
}

// insertIntakesSQL inserts the outbox rows of a request's recipients and its idempotency key, or
// nothing if the key exists.
//
//go:embed sql/accept_recipients.sql
var insertIntakesSQL string

// intakeScalars are what accept_recipients.sql takes besides the recipients.
type intakeScalars struct {
	NewRecipients
	wait time.Duration
}

// key is the request's idempotency key, the empty one if it has none.
func (n *intakeScalars) key() IdempotencyKey {
	if n.Idempotency == nil {
		return IdempotencyKey{}
	}
	return *n.Idempotency
}

// intakeParameters are those of accept_recipients.sql.
var intakeParameters = parameters[intakeScalars, intakeRow]{
	scalars: []scalar[intakeScalars]{
		{"lock_timeout", "text", func(n intakeScalars) any { return lockTimeout(n.wait) }},
		{"company_id", "uuid", func(n intakeScalars) any { return n.CompanyID }},
		{"queue", "text", func(intakeScalars) any { return email.QueueRecipients }},
		{"target", "text", func(intakeScalars) any { return email.TargetRecipients }},
		{"request_id", "text", func(n intakeScalars) any { return n.RequestID }},
		{"created_at", "timestamptz", func(n intakeScalars) any { return n.CreatedAt }},
		{"first_id", "uuid", func(n intakeScalars) any { return n.Recipients[0].OutboxID }},
		{"keyed", "bool", func(n intakeScalars) any { return n.Idempotency != nil }},
		{"route", "text", func(n intakeScalars) any { return n.key().Route }},
		{"key", "text", func(n intakeScalars) any { return n.key().Key }},
		{"body_sha256", "bytea", func(n intakeScalars) any { return n.key().BodySHA256 }},
		{"answer_status", "smallint", func(n intakeScalars) any { return n.key().Status }},
		{"answer", "bytea", func(n intakeScalars) any { return n.key().Answer }},
		{"keep_ms", "double precision", func(n intakeScalars) any { return n.key().Keep.Milliseconds() }},
	},
	columns: []column[intakeRow]{
		each("outbox_id", "uuid", uuids, func(r *intakeRow) uuid.UUID { return r.OutboxID }),
		each("recipient_id", "uuid", uuids, func(r *intakeRow) uuid.UUID { return r.ID }),
		each("email", "text", texts, func(r *intakeRow) string { return r.Email }),
		each("payload", "jsonb", jsonbs, func(r *intakeRow) []byte { return r.payload }),
		each("cpf_cnpj_enc", "bytea", byteas, func(r *intakeRow) []byte { return r.CPFCNPJ }),
	},
}
