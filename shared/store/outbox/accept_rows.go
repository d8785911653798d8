package outbox

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/google/uuid"
	"github.com/jmoiron/sqlx"

	"email-gateway/shared/email"
	"email-gateway/shared/store/file"
	"email-gateway/shared/store/idempotency"
	"email-gateway/shared/store/internal/pg"
	"email-gateway/shared/store/lane"
	"email-gateway/shared/store/sql"
)

// acceptStatement returns the statement that inserts the emails.
func acceptStatement(emails []NewEmail) string {
	if anyScheduled(emails) {
		return sql.AcceptScheduled
	}
	return sql.Accept
}

func anyScheduled(emails []NewEmail) bool {
	return slices.ContainsFunc(emails, func(e NewEmail) bool { return !e.SendAt.IsZero() })
}

// acceptScalars are the scalar parameters of accept.sql and accept_scheduled.sql.
type acceptScalars struct {
	count int // of the emails
	wait  time.Duration
}

func acceptArguments(emails []NewEmail, wait time.Duration) []any {
	return acceptParameters.Arguments(acceptScalars{len(emails), wait}, emails)
}

// acceptParameters are the parameters of accept.sql and accept_scheduled.sql.
var acceptParameters = pg.Parameters[acceptScalars, NewEmail]{
	Scalars: []pg.Scalar[acceptScalars]{
		pg.One("lock_timeout", "text", func(s acceptScalars) any { return pg.LockTimeout(s.wait) }),
		pg.One("count", "bigint", func(s acceptScalars) any { return s.count }),
	},
	Columns: []pg.Column[NewEmail]{
		pg.Each("id", "uuid", pg.UUIDs, func(e *NewEmail) uuid.UUID { return e.ID }),
		pg.Each("company_id", "uuid", pg.UUIDs, func(e *NewEmail) uuid.UUID { return e.CompanyID }),
		pg.Each("queue", "text", pg.Texts, func(e *NewEmail) string { return email.QueueFor(e.Priority) }),
		pg.Each("request_id", "text", pg.Texts, func(e *NewEmail) string { return e.RequestID }),
		pg.Each("payload", "jsonb", pg.JSONBs, func(e *NewEmail) []byte { return e.payload }),
		pg.Each("sender", "text", pg.Texts, func(e *NewEmail) string { return e.Sender }),
		pg.Each("html", "text", pg.Texts, func(e *NewEmail) string { return e.HTML }),
		pg.Each("text_body", "text", pg.OptionalTexts, func(e *NewEmail) string { return e.Text }),
		pg.Each("auto_text", "bool", pg.Bools, func(e *NewEmail) bool { return !e.NoAutoText }),
		pg.Each("html_sha256", "bytea", pg.Byteas, func(e *NewEmail) []byte { return e.HTMLSHA256 }),
		pg.Each("checker_version", "bigint", pg.BigInts, func(e *NewEmail) int64 { return int64(e.CheckerVersion) }),
		pg.Each("cpf_cnpj_enc", "bytea", pg.Byteas, func(e *NewEmail) []byte { return e.CPFCNPJ }),
		pg.Each("priority", "bigint", pg.BigInts, func(e *NewEmail) int64 { return int64(e.Priority) }),
		pg.Each("delivery", "text", pg.Texts, func(e *NewEmail) string { return string(e.Delivery) }),
		pg.Each("send_at", "timestamptz", pg.Times, func(e *NewEmail) time.Time { return e.SendAt }),
		pg.Each("ttl_ms", "bigint", pg.BigInts, func(e *NewEmail) int64 { return e.TTL.Milliseconds() }),
		pg.Each("created_at", "timestamptz", pg.Times, func(e *NewEmail) time.Time { return e.CreatedAt }),
		pg.Each("keyed", "bool", pg.Bools, func(e *NewEmail) bool { return e.Idempotency != nil }),
		pg.Each("route", "text", pg.Texts, func(e *NewEmail) string { return e.key().Route }),
		pg.Each("key", "text", pg.Texts, func(e *NewEmail) string { return e.key().Key }),
		pg.Each("body_sha256", "bytea", pg.Byteas, func(e *NewEmail) []byte { return e.key().BodySHA256 }),
		pg.Each("answer_status", "bigint", pg.BigInts, func(e *NewEmail) int64 { return int64(e.key().Status) }),
		pg.Each("answer", "bytea", pg.Byteas, func(e *NewEmail) []byte { return e.key().Answer }),
		pg.Each("keep_ms", "bigint", pg.BigInts, func(e *NewEmail) int64 { return e.key().Keep.Milliseconds() }),
		pg.Each("aggregate_type", "text", pg.OptionalTexts, func(e *NewEmail) string { return e.aggregate().Type }),
		pg.Each("aggregate_id", "text", pg.OptionalTexts, func(e *NewEmail) string { return e.aggregate().ID }),
		pg.Each("event_type", "text", pg.OptionalTexts, func(e *NewEmail) string { return e.aggregate().EventType }),
		pg.Each("template", "text", pg.OptionalTexts, func(e *NewEmail) string { return e.Template }),
		pg.Each("attachments", "bigint", pg.OptionalBigInts, func(e *NewEmail) int64 { return int64(len(e.Attachments)) }),
	},
}

// insertEmails reports for each email whether it was inserted.
func (s *Store) insertEmails(ctx context.Context, emails []NewEmail, wait time.Duration) ([]bool, error) {
	statement := s.insertEmail
	if anyScheduled(emails) {
		statement = s.scheduleEmail
	}
	var inserted []uuid.UUID
	err := pg.Write(func(columns []any) error {
		return statement.Select(ctx, &inserted, columns...)
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

// AcceptIn writes emails in the caller's transaction and waits for each lock at most as long as wait.
func AcceptIn(ctx context.Context, tx *sqlx.Tx, emails []NewEmail, wait time.Duration) error {
	if len(emails) == 0 {
		return nil
	}
	for i := range emails {
		var err error
		if emails[i].payload, err = json.Marshal(emails[i].Job); err != nil {
			return fmt.Errorf("encode job: %w", err)
		}
	}
	var inserted []uuid.UUID
	if err := tx.SelectContext(ctx, &inserted, acceptStatement(emails), acceptArguments(emails, wait)...); err != nil {
		return fmt.Errorf("insert emails: %w", pg.Translate(err))
	}
	if len(inserted) != len(emails) {
		return lane.ErrNone
	}
	return nil
}

// key returns the email's idempotency key, or the zero Key if it has none.
func (e *NewEmail) key() idempotency.Key {
	if e.Idempotency == nil {
		return idempotency.Key{}
	}
	return *e.Idempotency
}

// aggregate returns the email's aggregate, or the zero Aggregate if it has none.
func (e *NewEmail) aggregate() Aggregate {
	if e.Aggregate == nil {
		return Aggregate{}
	}
	return *e.Aggregate
}

// Attached returns the attachments of emails, for file.Hold and file.Link.
func Attached(emails []NewEmail) []file.Owned {
	var all []file.Owned
	for i := range emails {
		if e := &emails[i]; len(e.Attachments) > 0 {
			all = append(all, file.Owned{Owner: e.ID, Attachments: e.Attachments})
		}
	}
	return all
}
