package file

import (
	"context"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jmoiron/sqlx"

	"email-gateway/shared/store/internal/pg"
)

// Object identifies the object of a file in the storage.
type Object struct {
	ID        uuid.UUID `db:"id"`
	CompanyID uuid.UUID `db:"company_id"`
}

// Key returns the key of the object.
func (o Object) Key() string { return Key(o.CompanyID, o.ID) }

const (
	// lockUnusedSQL scans stored_files_used and locks files without an attachment (by attachments_file). It leaves files that
	// another transaction has locked, possibly to attach them, to the next round.
	lockUnusedSQL = `
SELECT f.id FROM stored_files f
WHERE f.used_at < now() - $1 * interval '1 ms' AND NOT EXISTS (SELECT FROM attachments a WHERE a.company_id = f.company_id AND a.file_id = f.id)
ORDER BY f.used_at LIMIT $2 FOR UPDATE OF f SKIP LOCKED`

	// lockErasedSQL is lockUnusedSQL for given files of a company (by stored_files_company_id_id_key), regardless of their age.
	lockErasedSQL = `
SELECT f.id FROM stored_files f
WHERE f.company_id = $1 AND f.id = ANY ($2::uuid[]) AND NOT EXISTS (SELECT FROM attachments a WHERE a.company_id = f.company_id AND a.file_id = f.id)
ORDER BY f.id FOR UPDATE OF f SKIP LOCKED`

	// deleteLockedSQL deletes files that the transaction has locked, by stored_files_pkey. It checks for attachments again:
	// its snapshot is newer than the locks, so it sees the attachments of every transaction that held the file before.
	deleteLockedSQL = `
DELETE FROM stored_files f
WHERE f.id = ANY ($1::uuid[]) AND NOT EXISTS (SELECT FROM attachments a WHERE a.company_id = f.company_id AND a.file_id = f.id)
RETURNING f.id, f.company_id`
)

// DeleteUnused deletes at most limit files that no email and no mailing attaches and that were last uploaded longer ago
// than age, and returns how many. Their objects stay, as orphans.
func (s *Store) DeleteUnused(ctx context.Context, age time.Duration, limit int) (int, error) {
	gone, err := s.delete(ctx, "delete unused files", lockUnusedSQL, age.Milliseconds(), limit)
	return len(gone), err
}

// DeleteErased deletes the given files of a company that no email and no mailing attaches, regardless of their age. The
// caller deletes their objects.
func (s *Store) DeleteErased(ctx context.Context, company uuid.UUID, ids []uuid.UUID) ([]Object, error) {
	return s.delete(ctx, "delete erased files", lockErasedSQL, company, pg.UUIDArray(ids))
}

func (s *Store) delete(ctx context.Context, what, lock string, args ...any) (gone []Object, err error) {
	err = s.db.InTx(ctx, func(tx *sqlx.Tx) error {
		gone = nil
		var locked []uuid.UUID
		if err := tx.SelectContext(ctx, &locked, lock, args...); err != nil || len(locked) == 0 {
			return pg.Translate(err)
		}
		return pg.Translate(tx.SelectContext(ctx, &gone, deleteLockedSQL, pg.UUIDArray(locked)))
	})
	return gone, pg.Wrap(what, err)
}

// allSQL scans stored_files_pkey and locks nothing.
const allSQL = `SELECT id, company_id FROM stored_files WHERE id > $1 ORDER BY id LIMIT $2`

// All returns the next files of all companies by id: at most limit, with ids greater than after.
func (s *Store) All(ctx context.Context, after uuid.UUID, limit int) ([]Object, error) {
	var page []Object
	if err := s.db.Select(ctx, &page, allSQL, after, limit); err != nil {
		return nil, fmt.Errorf("list files: %w", pg.Translate(err))
	}
	return page, nil
}

// existSQL looks up each id by stored_files_pkey and locks nothing.
const existSQL = `SELECT id FROM stored_files WHERE id = ANY ($1::uuid[])`

// Exist returns which of the ids are ids of files, of any company.
func (s *Store) Exist(ctx context.Context, ids []uuid.UUID) (map[uuid.UUID]bool, error) {
	var found []uuid.UUID
	if err := s.db.Select(ctx, &found, existSQL, pg.UUIDArray(ids)); err != nil {
		return nil, fmt.Errorf("look for files: %w", pg.Translate(err))
	}
	exist := make(map[uuid.UUID]bool, len(found))
	for _, id := range found {
		exist[id] = true
	}
	return exist, nil
}
