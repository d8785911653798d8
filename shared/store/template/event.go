package template

import (
	"context"

	"github.com/google/uuid"
	"github.com/jmoiron/sqlx"

	"email-gateway/shared/store/internal/pg"
)

// keptEvents is how many events of a template are kept, with all its locales.
const keptEvents = 1000

// insertEventSQL inserts one row.
const insertEventSQL = `INSERT INTO template_events (company_id, name, locale, version, action, actor) VALUES ($1, $2, $3, $4, $5, $6)`

// oldEventsSQL reads template_events_template from its newest row back and locks what it deletes: one row, as a rule.
const oldEventsSQL = `
DELETE FROM template_events WHERE company_id = $1 AND name = $2 AND id <= (
    SELECT id FROM template_events WHERE company_id = $1 AND name = $2 ORDER BY id DESC OFFSET $3 LIMIT 1)`

// record inserts an event of a template and deletes its oldest.
func record(ctx context.Context, tx *sqlx.Tx, company uuid.UUID, actor string, id ID, version any, action string) error {
	if _, err := tx.ExecContext(ctx, insertEventSQL, company, id.Name, id.Locale, version, action, actor); err != nil {
		return pg.Translate(err)
	}
	_, err := tx.ExecContext(ctx, oldEventsSQL, company, id.Name, keptEvents)
	return pg.Translate(err)
}
