package recipient

import (
	"encoding/json"
	"fmt"
	"time"

	"github.com/google/uuid"

	"email-gateway/shared/email"
	"email-gateway/shared/store/idempotency"
	"email-gateway/shared/store/internal/pg"
)

// intakePayload is the payload of a recipient import's outbox row: everything but the CPF or CNPJ,
// which is stored encrypted in a separate column.
type intakePayload struct {
	ID          uuid.UUID `json:"id"`
	ExternalID  string    `json:"externalId,omitempty"`
	CPFCNPJHash string    `json:"cpfCnpjHash,omitempty"`
	RazaoSocial string    `json:"razaoSocial,omitempty"`
	Nome        string    `json:"nome,omitempty"`
	Email       string    `json:"email"`
	Traceparent string    `json:"traceparent,omitempty"` // for the dispatcher
}

// intakeRow is a recipient of a request, with the payload of its outbox row.
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

// intakeScalars are the parameters of accept_recipients.sql besides the recipients.
type intakeScalars struct {
	NewRecipients
	wait time.Duration
}

// key returns the request's idempotency key, or the zero value if it has none.
func (n *intakeScalars) key() idempotency.Key {
	if n.Idempotency == nil {
		return idempotency.Key{}
	}
	return *n.Idempotency
}

// intakeParameters are the parameters of accept_recipients.sql.
var intakeParameters = pg.Parameters[intakeScalars, intakeRow]{
	Scalars: []pg.Scalar[intakeScalars]{
		pg.One("lock_timeout", "text", func(n intakeScalars) any { return pg.LockTimeout(n.wait) }),
		pg.One("company_id", "uuid", func(n intakeScalars) any { return n.CompanyID }),
		pg.One("queue", "text", func(intakeScalars) any { return email.QueueRecipients }),
		pg.One("target", "text", func(intakeScalars) any { return email.TargetRecipients }),
		pg.One("request_id", "text", func(n intakeScalars) any { return n.RequestID }),
		pg.One("created_at", "timestamptz", func(n intakeScalars) any { return n.CreatedAt }),
		pg.One("first_id", "uuid", func(n intakeScalars) any { return n.Recipients[0].OutboxID }),
		pg.One("keyed", "bool", func(n intakeScalars) any { return n.Idempotency != nil }),
		pg.One("route", "text", func(n intakeScalars) any { return n.key().Route }),
		pg.One("key", "text", func(n intakeScalars) any { return n.key().Key }),
		pg.One("body_sha256", "bytea", func(n intakeScalars) any { return n.key().BodySHA256 }),
		pg.One("answer_status", "smallint", func(n intakeScalars) any { return n.key().Status }),
		pg.One("answer", "bytea", func(n intakeScalars) any { return n.key().Answer }),
		pg.One("keep_ms", "double precision", func(n intakeScalars) any { return n.key().Keep.Milliseconds() }),
	},
	Columns: []pg.Column[intakeRow]{
		pg.Each("outbox_id", "uuid", pg.UUIDs, func(r *intakeRow) uuid.UUID { return r.OutboxID }),
		pg.Each("recipient_id", "uuid", pg.UUIDs, func(r *intakeRow) uuid.UUID { return r.ID }),
		pg.Each("email", "text", pg.Texts, func(r *intakeRow) string { return r.Email }),
		pg.Each("payload", "jsonb", pg.JSONBs, func(r *intakeRow) []byte { return r.payload }),
		pg.Each("cpf_cnpj_enc", "bytea", pg.Byteas, func(r *intakeRow) []byte { return r.CPFCNPJ }),
	},
}
