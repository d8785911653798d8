package person

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/google/uuid"
	"github.com/lib/pq"

	"email-gateway/shared/store/internal/pg"
	"email-gateway/shared/store/suppression"
)

// Mailing is a mailing to search for a person.
type Mailing struct {
	ID       uuid.UUID     `db:"id"`
	Filename string        `db:"filename"`
	First    uuid.NullUUID `db:"first_entry"`
	Last     uuid.NullUUID `db:"last_entry"`
	HasFile  bool          `db:"has_file"`
}

// personMailingsSQL scans mailings_company and locks nothing.
const personMailingsSQL = `
SELECT id, filename, first_entry, last_entry, file_deleted_at IS NULL AS has_file FROM mailings WHERE company_id = $1 ORDER BY id`

// Mailings lists all mailings of a company.
func (s *Store) Mailings(ctx context.Context, company uuid.UUID) ([]Mailing, error) {
	var all []Mailing
	if err := s.db.SelectContext(ctx, &all, personMailingsSQL, company); err != nil {
		return nil, fmt.Errorf("list mailings: %w", pg.Translate(err))
	}
	return all, nil
}

// These statements read the rows of a few addresses or emails and lock nothing: suppressions by
// their primary key, stored answers by the first column of their primary key, notifications by
// ses_events_outbox.
const (
	personSuppressionsSQL = `
SELECT address, reason, mailing_id, note, created_at FROM suppressions WHERE company_id = $1 AND address = ANY ($2::text[]) ORDER BY address, reason`
	personAnswersSQL = `
SELECT to_jsonb(k) - 'answer' || jsonb_build_object('answer', convert_from(k.answer, 'UTF8')) FROM idempotency_keys k
WHERE k.company_id = $1 AND k.outbox_id = ANY ($2::uuid[]) ORDER BY k.created_at`
	personNotificationsSQL = `SELECT to_jsonb(n) FROM ses_events n WHERE n.outbox_id = ANY ($1::uuid[]) ORDER BY n.received_at, n.sns_message_id`
)

// Suppressions lists the suppressions of the person's addresses.
func (s *Store) Suppressions(ctx context.Context, p Person) ([]suppression.Suppression, error) {
	found := []suppression.Suppression{}
	if err := s.db.SelectContext(ctx, &found, personSuppressionsSQL, p.CompanyID, pq.StringArray(p.Addresses)); err != nil {
		return nil, fmt.Errorf("list suppressions of a person: %w", pg.Translate(err))
	}
	return found, nil
}

// Answers lists the stored answers to the requests that created these emails or
// recipient imports.
func (s *Store) Answers(ctx context.Context, p Person, outboxIDs []uuid.UUID) ([]json.RawMessage, error) {
	return s.personJSON(ctx, "list stored answers", personAnswersSQL, p.CompanyID, pg.UUIDArray(outboxIDs))
}

// Notifications lists the notifications of SES about these emails.
func (s *Store) Notifications(ctx context.Context, outboxIDs []uuid.UUID) ([]json.RawMessage, error) {
	return s.personJSON(ctx, "list notifications", personNotificationsSQL, pg.UUIDArray(outboxIDs))
}

func (s *Store) personJSON(ctx context.Context, what, statement string, args ...any) ([]json.RawMessage, error) {
	var found [][]byte
	if err := s.db.SelectContext(ctx, &found, statement, args...); err != nil {
		return nil, fmt.Errorf("%s: %w", what, pg.Translate(err))
	}
	rows := make([]json.RawMessage, len(found))
	for i := range found {
		rows[i] = found[i]
	}
	return rows, nil
}
