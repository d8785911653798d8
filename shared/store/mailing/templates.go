package mailing

import (
	"context"
	"fmt"

	"github.com/google/uuid"
	"github.com/lib/pq"

	"email-gateway/shared/store/internal/pg"
)

// Templates is what the emails of a mailing are made from. It does not change until
// retention.Store.EraseTemplates blanks it.
type Templates struct {
	HTML           string         `db:"html"`
	Text           string         `db:"text_body"` // "" = none
	AutoText       bool           `db:"auto_text"` // without Text, a text part is made from the rendered HTML
	HTMLSHA256     []byte         `db:"html_sha256"`
	CheckerVersion int            `db:"checker_version"`
	Attachments    int            `db:"attachments"` // how many files every email has
	Fields         pq.StringArray `db:"fields"`      // the names of the values in outbox.LoadedEmail.Fields
	Subject        string         `db:"subject"`
	Template       string         `db:"template"`           // the stored template version of the other fields; "" = none
	Variables      string         `db:"template_variables"` // JSON: the variables that this version declares
}

// mailingTemplatesSQL reads one row by primary key and locks nothing.
const mailingTemplatesSQL = `
SELECT html, coalesce(text_body, '') AS text_body, auto_text, html_sha256, checker_version, coalesce(attachments, 0) AS attachments, fields, subject,
       coalesce(template, '') AS template, coalesce(template_variables, '') AS template_variables
FROM mailings WHERE id = $1`

// MailingTemplates returns a mailing's templates, or pg.ErrNotFound if there is no such mailing or
// its templates are no longer kept.
func (s *Store) MailingTemplates(ctx context.Context, mailing uuid.UUID) (Templates, error) {
	var t Templates
	if err := s.db.GetContext(ctx, &t, mailingTemplatesSQL, mailing); err != nil {
		return Templates{}, fmt.Errorf("read mailing's templates: %w", pg.Translate(err))
	}
	if t.HTML == "" && t.Text == "" {
		return Templates{}, fmt.Errorf("read mailing's templates: %w", pg.ErrNotFound)
	}
	return t, nil
}
