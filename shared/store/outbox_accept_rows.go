package store

import (
	"context"
	_ "embed"
	"fmt"
	"slices"
	"time"

	"github.com/google/uuid"

	"email-gateway/shared/email"
)

// insertEmailsSQL inserts a group of emails and their idempotency keys.
//
//go:embed sql/accept.sql
var insertEmailsSQL string

// insertScheduledSQL is insertEmailsSQL for a group with scheduled emails. It also inserts their logs.
//
//go:embed sql/accept_scheduled.sql
var insertScheduledSQL string

// acceptStatement is the statement that writes the emails.
func acceptStatement(emails []NewEmail) string {
	if anyScheduled(emails) {
		return insertScheduledSQL
	}
	return insertEmailsSQL
}

func anyScheduled(emails []NewEmail) bool {
	return slices.ContainsFunc(emails, func(e NewEmail) bool { return !e.SendAt.IsZero() })
}

// acceptScalars are what accept.sql takes besides the emails.
type acceptScalars struct {
	count int // of the emails
	wait  time.Duration
}

func acceptArguments(emails []NewEmail, wait time.Duration) []any {
	return acceptParameters.arguments(acceptScalars{len(emails), wait}, emails)
}

// acceptParameters are those of accept.sql and accept_scheduled.sql.
var acceptParameters = parameters[acceptScalars, NewEmail]{
	scalars: []scalar[acceptScalars]{
		{"lock_timeout", "text", func(s acceptScalars) any { return lockTimeout(s.wait) }},
		{"count", "bigint", func(s acceptScalars) any { return s.count }},
	},
	columns: []column[NewEmail]{
		each("id", "uuid", uuids, func(e *NewEmail) uuid.UUID { return e.ID }),
		each("company_id", "uuid", uuids, func(e *NewEmail) uuid.UUID { return e.CompanyID }),
		each("queue", "text", texts, func(e *NewEmail) string { return email.QueueFor(e.Priority) }),
		each("request_id", "text", texts, func(e *NewEmail) string { return e.RequestID }),
		each("payload", "jsonb", jsonbs, func(e *NewEmail) []byte { return e.payload }),
		each("sender", "text", texts, func(e *NewEmail) string { return e.Sender }),
		each("html", "text", texts, func(e *NewEmail) string { return e.HTML }),
		each("text_body", "text", optionalTexts, func(e *NewEmail) string { return e.Text }),
		each("html_sha256", "bytea", byteas, func(e *NewEmail) []byte { return e.HTMLSHA256 }),
		each("checker_version", "bigint", bigints, func(e *NewEmail) int64 { return int64(e.CheckerVersion) }),
		each("cpf_cnpj_enc", "bytea", byteas, func(e *NewEmail) []byte { return e.CPFCNPJ }),
		each("priority", "bigint", bigints, func(e *NewEmail) int64 { return int64(e.Priority) }),
		each("delivery", "text", texts, func(e *NewEmail) string { return string(e.Delivery) }),
		each("send_at", "timestamptz", times, func(e *NewEmail) time.Time { return e.SendAt }),
		each("ttl_ms", "bigint", bigints, func(e *NewEmail) int64 { return e.TTL.Milliseconds() }),
		each("created_at", "timestamptz", times, func(e *NewEmail) time.Time { return e.CreatedAt }),
		each("keyed", "bool", bools, func(e *NewEmail) bool { return e.Idempotency != nil }),
		each("route", "text", texts, func(e *NewEmail) string { return e.key().Route }),
		each("key", "text", texts, func(e *NewEmail) string { return e.key().Key }),
		each("body_sha256", "bytea", byteas, func(e *NewEmail) []byte { return e.key().BodySHA256 }),
		each("answer_status", "bigint", bigints, func(e *NewEmail) int64 { return int64(e.key().Status) }),
		each("answer", "bytea", byteas, func(e *NewEmail) []byte { return e.key().Answer }),
		each("keep_ms", "bigint", bigints, func(e *NewEmail) int64 { return e.key().Keep.Milliseconds() }),
		each("aggregate_type", "text", optionalTexts, func(e *NewEmail) string { return e.about().Type }),
		each("aggregate_id", "text", optionalTexts, func(e *NewEmail) string { return e.about().ID }),
		each("event_type", "text", optionalTexts, func(e *NewEmail) string { return e.about().EventType }),
	},
}

// insertEmails says of each email whether it was inserted.
func (s *Store) insertEmails(ctx context.Context, emails []NewEmail, wait time.Duration) ([]bool, error) {
	statement := s.insertEmail
	if anyScheduled(emails) {
		statement = s.scheduleEmail
	}
	var inserted []uuid.UUID
	err := write(func(columns []any) error {
		return statement.selectAll(ctx, &inserted, columns...)
	}, acceptArguments(emails, wait)...)
	if err != nil {
		return nil, fmt.Errorf("insert emails: %w", err)
	}
	done := make(map[uuid.UUID]bool, len(inserted))
	for _, id := range inserted {
		done[id] = true
	}
	results := make([]bool, len(emails))
	for i := range emails {
		results[i] = done[emails[i].ID]
	}
	return results, nil
}

// key is the email's idempotency key, the empty one if it has none.
func (e *NewEmail) key() IdempotencyKey {
	if e.Idempotency == nil {
		return IdempotencyKey{}
	}
	return *e.Idempotency
}

// about is what the email is about, the empty one if that has no name.
func (e *NewEmail) about() Aggregate {
	if e.Aggregate == nil {
		return Aggregate{}
	}
	return *e.Aggregate
}
