package template

import (
	"context"
	"fmt"

	"github.com/google/uuid"
	"github.com/jmoiron/sqlx"
	"github.com/lib/pq"

	"email-gateway/shared/store/internal/pg"
)

// resolveSQL finds the templates by primary key, one per locale, and locks nothing.
const resolveSQL = `
SELECT t.locale, t.published AS version FROM templates t
WHERE t.company_id = $1 AND t.name = $2 AND t.locale = ANY ($3) AND t.published IS NOT NULL
ORDER BY array_position($3, t.locale) LIMIT 1`

// Resolve returns the published version in the first of the locales that has one, or pg.ErrNotFound.
func (s *Store) Resolve(ctx context.Context, company uuid.UUID, name string, locales []string) (id ID, version int, err error) {
	var row struct {
		Locale  string
		Version int
	}
	if err := s.db.Get(ctx, &row, resolveSQL, company, name, pq.StringArray(locales)); err != nil {
		return ID{}, 0, fmt.Errorf("resolve template: %w", pg.Translate(err))
	}
	return ID{name, row.Locale}, row.Version, nil
}

// resolveVersionSQL finds the version by the primary key of template_versions, once per locale, and locks nothing.
const resolveVersionSQL = `
SELECT v.locale FROM template_versions v
WHERE v.company_id = $1 AND v.name = $2 AND v.locale = ANY ($3) AND v.version = $4
ORDER BY array_position($3, v.locale) LIMIT 1`

// ResolveVersion returns the first of the locales in which a template has the version, or pg.ErrNotFound.
func (s *Store) ResolveVersion(ctx context.Context, company uuid.UUID, name string, locales []string, version int) (ID, error) {
	id := ID{Name: name}
	if err := s.db.Get(ctx, &id.Locale, resolveVersionSQL, company, name, pq.StringArray(locales), version); err != nil {
		return ID{}, fmt.Errorf("resolve template version: %w", pg.Translate(err))
	}
	return id, nil
}

// findVersionSQL finds by the primary keys of both tables and locks nothing.
const findVersionSQL = `
SELECT v.name, v.locale, v.version, v.subject, v.html, v.text_body, v.variables, v.created_by, v.created_at,
       t.published IS NOT DISTINCT FROM v.version AS published
FROM template_versions v JOIN templates t ON t.company_id = v.company_id AND t.name = v.name AND t.locale = v.locale
WHERE v.company_id = $1 AND v.name = $2 AND v.locale = $3 AND v.version = $4`

// Find returns one version, or pg.ErrNotFound.
func (s *Store) Find(ctx context.Context, company uuid.UUID, id ID, version int) (Version, error) {
	return find(ctx, s.db, company, id, version)
}

// find is Find on connections or in a transaction.
func find(ctx context.Context, db sqlx.QueryerContext, company uuid.UUID, id ID, version int) (Version, error) {
	var v Version
	if err := sqlx.GetContext(ctx, db, &v, findVersionSQL, company, id.Name, id.Locale, version); err != nil {
		return Version{}, fmt.Errorf("find template version: %w", pg.Translate(err))
	}
	return v, nil
}
