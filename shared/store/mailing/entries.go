package mailing

import (
	"context"
	"fmt"
	"time"

	"github.com/google/uuid"

	"email-gateway/shared/store/internal/pg"
)

// The states of an entry before its email is final. Afterwards the entry has the email's status.
const (
	EntryPending = "PENDING" // not an email yet
	EntryInvalid = "INVALID" // never becomes an email
	EntryQueued  = "QUEUED"  // an email that is not final yet
)

// Entry describes one address of a mailing. The email made from it has the same id.
type Entry struct {
	ID                uuid.UUID     `db:"id"`
	Line              int           `db:"line_no"`
	Email             string        `db:"email"`
	Status            string        `db:"status"`
	OutcomeUnknown    bool          `db:"outcome_unknown"`
	Attempts          int           `db:"attempts"`
	LastAttempt       *time.Time    `db:"last_attempt"`
	SESMessageID      *string       `db:"external_id"`
	InvalidReason     *string       `db:"invalid_reason"` // "syntax", "disposable" or "mx"
	ValidationDetails *string       `db:"validation_details"`
	Nome              *string       `db:"nome"`
	RazaoSocial       *string       `db:"razao_social"`
	ExternalID        *string       `db:"recipient_external_id"`
	RecipientID       uuid.NullUUID `db:"recipient_id"`
	CreatedAt         time.Time     `db:"created_at"`
	UpdatedAt         time.Time     `db:"updated_at"`
}

// EntryFilter chooses entries of a mailing, in the order of the lines.
type EntryFilter struct {
	Status string    // "" = all
	After  uuid.UUID // only entries with a greater id: the cursor
	Limit  int
}

// entriesSQL reads the range of the primary key that contains the mailing's entries, in id
// order, and locks nothing. Mailings uploaded at the same time share a range, so mailing_id is
// compared too. IS TRUE keeps the planner from using mailing_entries_address, with which it would
// read and sort all entries. For a rare status the scan may reach the end of the range: a million
// entries take about half a second.
const entriesSQL = `
SELECT id, line_no, email, status, outcome_unknown, attempts, last_attempt, external_id, invalid_reason, validation_details,
       nome, razao_social, recipient_external_id, recipient_id, created_at, updated_at
FROM mailing_entries
WHERE id >= $1 AND id > $2 AND id <= $3 AND (mailing_id = $4) IS TRUE AND ($5 = '' OR status = $5)
ORDER BY id LIMIT $6`

// MailingEntries returns a page of a mailing's entries, or pg.ErrNotFound if the company has no
// such mailing.
func (s *Store) MailingEntries(ctx context.Context, company, id uuid.UUID, f EntryFilter) ([]Entry, error) {
	m, err := s.FindMailing(ctx, company, id)
	if err != nil {
		return nil, err
	}
	page := []Entry{}
	err = s.db.SelectContext(ctx, &page, entriesSQL, m.FirstEntry.UUID, f.After, m.LastEntry.UUID, id, f.Status, max(f.Limit, 1))
	if err != nil {
		return nil, fmt.Errorf("list entries: %w", pg.Translate(err))
	}
	return page, nil
}
