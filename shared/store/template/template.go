// Package template holds the statements of stored templates: their versions, which of these is
// published, and who created, published and deleted them.
package template

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jmoiron/sqlx"

	"email-gateway/shared/store/internal/pg"
)

// Limits of what one company can store.
const (
	MaxVersions = 5000
	MaxBytes    = 256 << 20
	// MaxNames bounds names and locales, with those of deleted templates: their numbers continue, so their rows stay.
	MaxNames = 20_000
)

// ErrFull: the company has the maximum number of versions, bytes or names of templates.
var ErrFull = errors.New("the company has the maximum number of template versions, bytes or names")

// Store runs the statements. It is safe for concurrent use.
type Store struct{ db *pg.DB }

// New returns a Store on connections.
func New(db *pg.DB) *Store { return &Store{db: db} }

// ID names a template of a company. The locale "" is the default.
type ID struct{ Name, Locale string }

// Version is a version of a template. It never changes.
type Version struct {
	Name      string    `db:"name"`
	Locale    string    `db:"locale"`
	Version   int       `db:"version"`
	Subject   string    `db:"subject"`
	HTML      string    `db:"html"`
	Text      string    `db:"text_body"`
	Variables string    `db:"variables"` // JSON
	CreatedBy string    `db:"created_by"`
	CreatedAt time.Time `db:"created_at"`
	Published bool      `db:"published"`
}

// size is what the version counts towards MaxBytes.
func (v Version) size() int {
	return len(v.Subject) + len(v.HTML) + len(v.Text) + len(v.Variables)
}

// sum identifies the content.
func (v Version) sum() []byte {
	h := sha256.New()
	for _, part := range []string{v.Subject, v.HTML, v.Text, v.Variables} {
		fmt.Fprintf(h, "%d:%s", len(part), part)
	}
	return h.Sum(nil)
}

// lockTotalsSQL finds and locks the company's one row by primary key, or makes it.
const lockTotalsSQL = `
INSERT INTO template_totals AS t (company_id, versions, bytes) VALUES ($1, 0, 0)
ON CONFLICT (company_id) DO UPDATE SET versions = t.versions RETURNING versions, bytes`

// latestSQL finds the newest version by the primary keys of templates and template_versions and locks nothing:
// the caller has locked the company's totals.
const latestSQL = `
SELECT v.version, v.sha256, t.published IS NOT DISTINCT FROM v.version AS published FROM templates t
JOIN template_versions v ON v.company_id = t.company_id AND v.name = t.name AND v.locale = t.locale AND v.version = t.latest
WHERE t.company_id = $1 AND t.name = $2 AND t.locale = $3`

// nextVersionSQL finds and locks the template's row by primary key, or makes it.
const nextVersionSQL = `
INSERT INTO templates AS t (company_id, name, locale, latest) VALUES ($1, $2, $3, 1)
ON CONFLICT (company_id, name, locale) DO UPDATE SET latest = t.latest + 1, deleted_at = NULL, updated_at = now() RETURNING latest`

// insertVersionSQL inserts one row.
const insertVersionSQL = `
INSERT INTO template_versions (company_id, name, locale, version, subject, html, text_body, variables, sha256, created_by)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)`

// addTotalsSQL finds by primary key the row that the transaction has locked.
const addTotalsSQL = `UPDATE template_totals SET versions = versions + $2, bytes = bytes + $3 WHERE company_id = $1`

// namesSQL reads along the primary key, at most MaxNames rows and one. It needs no lock: the caller holds that of the
// company's totals.
const namesSQL = `SELECT count(*) FROM (SELECT FROM templates WHERE company_id = $1 LIMIT $2) t`

// publishSQL finds the template and the version by their primary keys and locks the template. It changes nothing if
// the version is the published one already. After a wait for the lock, PostgreSQL checks the conditions on t again, but EXISTS
// still reads the versions of before the wait: deleted_at excludes those that a concurrent Delete has deleted.
const publishSQL = `
UPDATE templates t SET published = $4, updated_at = now()
WHERE t.company_id = $1 AND t.name = $2 AND t.locale = $3 AND t.deleted_at IS NULL AND t.published IS DISTINCT FROM $4 AND EXISTS (
    SELECT FROM template_versions v WHERE v.company_id = $1 AND v.name = $2 AND v.locale = $3 AND v.version = $4)`

// Create stores a new version and returns it; the newest one, and made = false, if that has the same
// content. publish makes it the published version. ErrFull: the company has too many.
func (s *Store) Create(ctx context.Context, company uuid.UUID, actor string, v Version, publish bool) (stored Version, made bool, err error) {
	err = s.db.InTx(ctx, func(tx *sqlx.Tx) error {
		var totals struct{ Versions, Bytes int64 }
		if err := tx.GetContext(ctx, &totals, lockTotalsSQL, company); err != nil {
			return pg.Translate(err)
		}
		var latest struct {
			Version   int
			SHA256    []byte `db:"sha256"`
			Published bool
		}
		id, number, sum := ID{v.Name, v.Locale}, 0, v.sum()
		err := pg.Translate(tx.GetContext(ctx, &latest, latestSQL, company, v.Name, v.Locale))
		switch {
		case err == nil && string(latest.SHA256) == string(sum):
			number = latest.Version
		case err == nil || errors.Is(err, pg.ErrNotFound):
			if totals.Versions >= MaxVersions || totals.Bytes+int64(v.size()) > MaxBytes {
				return ErrFull
			}
			if number, err = insert(ctx, tx, company, actor, v, sum); err != nil {
				return err
			}
			made = true
		default:
			return err
		}
		if publish {
			if _, err := publishIn(ctx, tx, company, actor, id, number); err != nil {
				return err
			}
		}
		// Before the commit: a read after it could fail and hide that the version is stored.
		stored, err = find(ctx, tx, company, id, number)
		return err
	})
	if err != nil {
		return Version{}, false, fmt.Errorf("create template version: %w", err)
	}
	return stored, made, nil
}

func insert(ctx context.Context, tx *sqlx.Tx, company uuid.UUID, actor string, v Version, sum []byte) (number int, err error) {
	if err := tx.GetContext(ctx, &number, nextVersionSQL, company, v.Name, v.Locale); err != nil {
		return 0, pg.Translate(err)
	}
	if number == 1 {
		var names int
		if err := tx.GetContext(ctx, &names, namesSQL, company, MaxNames+1); err != nil {
			return 0, pg.Translate(err)
		}
		if names > MaxNames {
			return 0, ErrFull
		}
	}
	if _, err := tx.ExecContext(ctx, insertVersionSQL, company, v.Name, v.Locale, number, v.Subject, v.HTML, v.Text, v.Variables, sum, actor); err != nil {
		return 0, pg.Translate(err)
	}
	if _, err := tx.ExecContext(ctx, addTotalsSQL, company, 1, v.size()); err != nil {
		return 0, pg.Translate(err)
	}
	return number, record(ctx, tx, company, actor, ID{v.Name, v.Locale}, number, "CREATED")
}

// publishIn reports whether the version was not published before.
func publishIn(ctx context.Context, tx *sqlx.Tx, company uuid.UUID, actor string, id ID, version int) (bool, error) {
	result, err := tx.ExecContext(ctx, publishSQL, company, id.Name, id.Locale, version)
	if err != nil {
		return false, pg.Translate(err)
	}
	if n, err := result.RowsAffected(); n == 0 || err != nil {
		return false, err
	}
	err = record(ctx, tx, company, actor, id, version, "PUBLISHED")
	return err == nil, err
}

// Publish makes a version the one that is sent when no version is given, and returns it. It is idempotent: only a change is
// recorded. pg.ErrNotFound: there is no such version, and nothing was changed.
func (s *Store) Publish(ctx context.Context, company uuid.UUID, actor string, id ID, version int) (published Version, err error) {
	err = s.db.InTx(ctx, func(tx *sqlx.Tx) (err error) {
		if _, err := publishIn(ctx, tx, company, actor, id, version); err != nil {
			return err
		}
		published, err = find(ctx, tx, company, id, version)
		return err
	})
	if err != nil {
		return Version{}, fmt.Errorf("publish template: %w", err)
	}
	return published, nil
}

const (
	// unpublishSQL finds and locks the template's row by primary key.
	unpublishSQL = `
UPDATE templates SET published = NULL, deleted_at = now(), updated_at = now()
WHERE company_id = $1 AND name = $2 AND locale = $3 AND deleted_at IS NULL`

	// deleteVersionsSQL finds by the first columns of the primary key and locks what it deletes.
	deleteVersionsSQL = `
WITH gone AS (
    DELETE FROM template_versions WHERE company_id = $1 AND name = $2 AND locale = $3
    RETURNING octet_length(subject) + octet_length(html) + octet_length(text_body) + octet_length(variables) AS bytes
)
SELECT count(*) AS versions, coalesce(sum(bytes), 0) AS bytes FROM gone`
)

// Delete deletes all versions of a template in one locale. Emails and mailings made from them keep their content.
// pg.ErrNotFound: there is no such template.
func (s *Store) Delete(ctx context.Context, company uuid.UUID, actor string, id ID) error {
	return pg.Wrap("delete template", s.db.InTx(ctx, func(tx *sqlx.Tx) error {
		var totals, gone struct{ Versions, Bytes int64 }
		if err := tx.GetContext(ctx, &totals, lockTotalsSQL, company); err != nil {
			return pg.Translate(err)
		}
		result, err := tx.ExecContext(ctx, unpublishSQL, company, id.Name, id.Locale)
		if err != nil {
			return pg.Translate(err)
		}
		if n, err := result.RowsAffected(); n == 0 || err != nil {
			return errors.Join(pg.ErrNotFound, err)
		}
		if err := tx.GetContext(ctx, &gone, deleteVersionsSQL, company, id.Name, id.Locale); err != nil {
			return pg.Translate(err)
		}
		if _, err := tx.ExecContext(ctx, addTotalsSQL, company, -gone.Versions, -gone.Bytes); err != nil {
			return pg.Translate(err)
		}
		return record(ctx, tx, company, actor, id, nil, "DELETED")
	}))
}
