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
	// lockUnusedSQL reads a page of stored_files_used behind a position, and locks those files of it that have no attachment (by
	// stored_files_pkey and attachments_file). It leaves files that another transaction has locked, possibly to attach them, to
	// the next round. The page bounds what it reads: files that were uploaded weeks ago and are still attached come first.
	lockUnusedSQL = `
WITH page AS MATERIALIZED (
    SELECT f.id, f.used_at FROM stored_files f
    WHERE f.used_at < now() - $1 * interval '1 ms' AND (f.used_at, f.id) > ($2::timestamptz, $3) ORDER BY f.used_at, f.id LIMIT $4
), locked AS (
    SELECT f.id FROM page p JOIN stored_files f ON f.id = p.id
    WHERE f.used_at < now() - $1 * interval '1 ms' AND NOT EXISTS (SELECT FROM attachments a WHERE a.company_id = f.company_id AND a.file_id = f.id)
    ORDER BY f.id FOR UPDATE OF f SKIP LOCKED
)
SELECT p.id, p.used_at::text AS used_at, l.id IS NOT NULL AS locked FROM page p LEFT JOIN locked l ON l.id = p.id ORDER BY p.used_at, p.id`

	// lockErasedSQL locks those of the given files of a company (by stored_files_company_id_id_key) that have no attachment,
	// regardless of their age, and leaves those that another transaction has locked.
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

// Position is that of a file in the order of the last uploads.
type Position struct {
	ID     uuid.UUID `db:"id"`
	UsedAt string    `db:"used_at"` // in Postgres's form, which may be -infinity
}

// FromOldest is the position before all files.
func FromOldest() Position { return Position{UsedAt: "-infinity"} }

// DeleteUnused looks at the next files behind after that were last uploaded longer ago than age, at most page. It deletes those
// that no email and no mailing attaches, and returns how many. Their objects stay, as orphans. The result next is FromOldest if
// there are no more files.
func (s *Store) DeleteUnused(ctx context.Context, age time.Duration, after Position, page int) (deleted int, next Position, err error) {
	var read []struct {
		Position
		Locked bool `db:"locked"`
	}
	gone, err := s.delete(ctx, "delete unused files", func(tx *sqlx.Tx) (locked []uuid.UUID, err error) {
		read = nil
		err = tx.SelectContext(ctx, &read, lockUnusedSQL, age.Milliseconds(), after.UsedAt, after.ID, page)
		for _, f := range read {
			if f.Locked {
				locked = append(locked, f.ID)
			}
		}
		return locked, err
	})
	switch {
	case err != nil:
		return 0, after, err
	case len(read) < page:
		return len(gone), FromOldest(), nil
	}
	return len(gone), read[len(read)-1].Position, nil
}

// DeleteErased deletes the given files of a company that no email and no mailing attaches, regardless of their age. The
// caller deletes their objects.
func (s *Store) DeleteErased(ctx context.Context, company uuid.UUID, ids []uuid.UUID) ([]Object, error) {
	return s.delete(ctx, "delete erased files", func(tx *sqlx.Tx) (locked []uuid.UUID, err error) {
		err = tx.SelectContext(ctx, &locked, lockErasedSQL, company, pg.UUIDArray(ids))
		return locked, err
	})
}

// delete deletes files that lock has locked.
func (s *Store) delete(ctx context.Context, what string, lock func(tx *sqlx.Tx) ([]uuid.UUID, error)) (gone []Object, err error) {
	err = s.db.InTx(ctx, func(tx *sqlx.Tx) error {
		gone = nil
		locked, err := lock(tx)
		if err != nil || len(locked) == 0 {
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
