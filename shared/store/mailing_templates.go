package store

import (
	"context"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/lib/pq"

	"email-gateway/shared/store/internal/pg"
)

// MailingTemplates is what the emails of a mailing are made from. It never changes until
// EraseTemplates blanks it.
type MailingTemplates struct {
	HTML           string         `db:"html"`
	Text           string         `db:"text_body"` // "" = none
	AutoText       bool           `db:"auto_text"` // without Text, a text part is made from the rendered HTML
	HTMLSHA256     []byte         `db:"html_sha256"`
	CheckerVersion int            `db:"checker_version"`
	Attachments    int            `db:"attachments"` // how many files every email has
	Fields         pq.StringArray `db:"fields"`      // the names that LoadedEmail.Fields holds values of
	Subject        string         `db:"subject"`
	Template       string         `db:"template"`           // the version of a stored template that the others are of; "" = none
	Variables      string         `db:"template_variables"` // JSON: what that version declares
}

// mailingTemplatesSQL reads one row by primary key and locks nothing.
const mailingTemplatesSQL = `
SELECT html, coalesce(text_body, '') AS text_body, auto_text, html_sha256, checker_version, coalesce(attachments, 0) AS attachments, fields, subject,
       coalesce(template, '') AS template, coalesce(template_variables, '') AS template_variables
FROM mailings WHERE id = $1`

// MailingTemplates reads them; ErrNotFound if there is no such mailing, or its templates are
// not kept any more.
func (s *Store) MailingTemplates(ctx context.Context, mailing uuid.UUID) (MailingTemplates, error) {
	var t MailingTemplates
	if err := s.db.GetContext(ctx, &t, mailingTemplatesSQL, mailing); err != nil {
		return MailingTemplates{}, fmt.Errorf("read mailing's templates: %w", pg.Translate(err))
	}
	if t.HTML == "" && t.Text == "" {
		return MailingTemplates{}, fmt.Errorf("read mailing's templates: %w", pg.ErrNotFound)
	}
	return t, nil
}

// templateBatch bounds what one statement reads: the check of a mailing may read as many
// outbox rows as the mailing has emails.
const templateBatch = 20

// eraseTemplatesSQL scans mailings_templates_kept, whose predicate is its condition, and locks the
// rows that it blanks; a mailing that another transaction has locked is left for the next round. Companies are
// looked up by company_retention_pkey. Templates stay while an email of the mailing can be sent
// again (a range of email_outbox_pkey), and those of a failed mailing while it can be resumed.
const eraseTemplatesSQL = `
WITH past AS MATERIALIZED (
    SELECT m.id FROM mailings m LEFT JOIN company_retention r ON r.company_id = m.company_id
    WHERE (m.html <> '' OR m.text_body IS NOT NULL) AND m.status IN ('COMPLETED', 'CANCELLED', 'FAILED')
      AND (m.status <> 'FAILED' OR m.entries_deleted_at IS NOT NULL) AND m.settling IS NULL
      AND coalesce(m.completed_at, m.updated_at) < now() - coalesce(r.bodies_days * interval '1 day', $1 * interval '1 ms')
      AND NOT EXISTS (SELECT FROM email_outbox o JOIN dispatch_lanes l ON l.id = o.lane_id
                      WHERE o.id >= m.first_entry AND o.id <= m.last_entry AND l.mailing_id = m.id AND o.body_erased_at IS NULL)
    ORDER BY coalesce(m.completed_at, m.updated_at) LIMIT $2
    FOR UPDATE OF m SKIP LOCKED
)
UPDATE mailings m SET html = '', text_body = NULL, template_variables = NULL FROM past WHERE m.id = past.id`

// EraseTemplates blanks html and text of at most limit mailings that ended longer ago than
// age, the retention of bodies, or than their company's own; age 0 = only those with such a
// retention.
func (s *Store) EraseTemplates(ctx context.Context, age time.Duration, limit int) (Cleaned, error) {
	limit = min(limit, templateBatch)
	result, err := s.db.Exec(ctx, eraseTemplatesSQL, milliseconds(age), limit)
	if err != nil {
		return Cleaned{}, fmt.Errorf("erase templates: %w", err)
	}
	n, err := result.RowsAffected()
	if err != nil {
		return Cleaned{}, fmt.Errorf("erase templates: %w", err)
	}
	return Cleaned{Count: int(n), More: int(n) == limit}, nil
}
