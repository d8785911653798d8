package store

import (
	"context"
	"fmt"

	"github.com/google/uuid"
	"github.com/lib/pq"
)

// MailingTemplates is what the emails of a mailing are made from. It never changes.
type MailingTemplates struct {
	HTML           string         `db:"html"`
	Text           string         `db:"text_body"` // "" = none
	HTMLSHA256     []byte         `db:"html_sha256"`
	CheckerVersion int            `db:"checker_version"`
	Fields         pq.StringArray `db:"fields"` // the names that LoadedEmail.Fields holds values of
}

// mailingTemplatesSQL reads one row by primary key and locks nothing.
const mailingTemplatesSQL = `
SELECT html, coalesce(text_body, '') AS text_body, html_sha256, checker_version, fields FROM mailings WHERE id = $1`

// MailingTemplates reads them; ErrNotFound if there is no such mailing.
func (s *Store) MailingTemplates(ctx context.Context, mailing uuid.UUID) (MailingTemplates, error) {
	var t MailingTemplates
	if err := s.db.GetContext(ctx, &t, mailingTemplatesSQL, mailing); err != nil {
		return MailingTemplates{}, fmt.Errorf("read mailing's templates: %w", translate(err))
	}
	return t, nil
}
