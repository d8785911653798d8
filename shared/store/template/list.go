package template

import (
	"context"
	"fmt"
	"time"

	"github.com/google/uuid"

	"email-gateway/shared/store/internal/pg"
)

// Summary is a template in one locale.
type Summary struct {
	Name      string    `db:"name"`
	Locale    string    `db:"locale"`
	Latest    int       `db:"latest"`
	Published *int      `db:"published"`
	UpdatedAt time.Time `db:"updated_at"`
}

// listSQL reads along the primary key and locks nothing.
const listSQL = `
SELECT name, locale, latest, published, updated_at FROM templates
WHERE company_id = $1 AND (name, locale) > ($2, $3) AND ($4 = '' OR name = $4) AND deleted_at IS NULL
ORDER BY name, locale LIMIT $5`

// List returns the company's templates behind after, by name and locale. name "" does not filter. A template with the
// locale "" of the name "" does not exist, so the zero ID is the beginning.
func (s *Store) List(ctx context.Context, company uuid.UUID, after ID, name string, limit int) ([]Summary, error) {
	found := []Summary{}
	if err := s.db.Select(ctx, &found, listSQL, company, after.Name, after.Locale, name, limit); err != nil {
		return nil, fmt.Errorf("list templates: %w", pg.Translate(err))
	}
	return found, nil
}

// Event is a step of a template: CREATED, PUBLISHED or DELETED.
type Event struct {
	Locale  string    `db:"locale"`
	Version *int      `db:"version"` // nil = all
	Action  string    `db:"action"`
	Actor   string    `db:"actor"` // key:<id>
	At      time.Time `db:"at"`
}

// historySQL reads template_events_template from its newest row back and locks nothing.
const historySQL = `
SELECT locale, version, action, actor, at FROM template_events
WHERE company_id = $1 AND name = $2 ORDER BY id DESC LIMIT $3`

// History returns the newest steps of a template in all its locales.
func (s *Store) History(ctx context.Context, company uuid.UUID, name string, limit int) ([]Event, error) {
	found := []Event{}
	if err := s.db.Select(ctx, &found, historySQL, company, name, limit); err != nil {
		return nil, fmt.Errorf("list template events: %w", pg.Translate(err))
	}
	return found, nil
}
