// Package installation contains the SQL statements of the installation's identity. Programs compare it with the markers of the
// file storage, of Redis and of RabbitMQ: see shared/blob, and asynqueue and rabbitmq of the worker.
package installation

import (
	"context"
	"fmt"
	"path"
	"strings"
	"sync"

	"github.com/google/uuid"

	"email-gateway/shared/store/internal/pg"
)

// Store runs the statements. It is safe for concurrent use.
type Store struct {
	db *pg.DB

	mu sync.Mutex
	id uuid.UUID // zero = not read yet
}

// New returns a Store that uses the connections of db.
func New(db *pg.DB) *Store { return &Store{db: db} }

// findSQL reads the only row, by installation_pkey, and locks nothing.
const findSQL = `SELECT id, storage_marked_at IS NOT NULL AS marked FROM installation WHERE singleton`

// Installation returns the installation's id, and whether a storage has been marked with it.
func (s *Store) Installation(ctx context.Context) (id uuid.UUID, marked bool, err error) {
	var row struct {
		ID     uuid.UUID `db:"id"`
		Marked bool      `db:"marked"`
	}
	if err := s.db.GetContext(ctx, &row, findSQL); err != nil {
		return uuid.Nil, false, fmt.Errorf("read installation: %w", pg.Translate(err))
	}
	return row.ID, row.Marked, nil
}

// ID returns the installation's id. It reads it once, because Detach changes it only while no program runs.
func (s *Store) ID(ctx context.Context) (uuid.UUID, error) {
	s.mu.Lock()
	id := s.id
	s.mu.Unlock()
	if id != uuid.Nil {
		return id, nil
	}
	id, _, err := s.Installation(ctx)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.id = id // zero after an error
	return id, err
}

// recordSQL updates the only row, by installation_pkey, once.
const recordSQL = `UPDATE installation SET storage_marked_at = now() WHERE singleton = $1 AND storage_marked_at IS NULL`

// RecordMarked records that a storage is marked with the installation's id.
func (s *Store) RecordMarked(ctx context.Context) error {
	_, err := s.db.Exec(ctx, recordSQL, true)
	return pg.Wrap("record marked storage", err)
}

// compareSQL looks up ids by stored_files_pkey and mailings_pkey, and reads one row of stored_files by its primary key and one
// of mailings_stored, which contains the mailings with a file. It locks nothing.
const compareSQL = `
SELECT EXISTS (SELECT FROM stored_files f WHERE f.id = ANY ($1::uuid[]))
        OR EXISTS (SELECT FROM mailings m WHERE m.id = ANY ($1::uuid[]) AND m.file_deleted_at IS NULL) AS known,
    EXISTS (SELECT FROM stored_files listed ORDER BY listed.id LIMIT 1)
        OR EXISTS (SELECT FROM mailings kept WHERE kept.file_deleted_at IS NULL AND kept.file_bytes > 0 ORDER BY kept.company_id LIMIT 1) AS listed,
    (SELECT storage_marked_at IS NOT NULL FROM installation WHERE singleton) AS marked`

// MayClaim compares the keys of files in a storage without a marker with the files that the database lists, and returns why the
// storage is most likely another one, or "". A storage is the installation's if it has a file of it, as after an update or a
// restore without the marker, or if it is empty, no storage has been marked before, and the database lists no file.
func (s *Store) MayClaim(ctx context.Context, keys []string) (refusal string, err error) {
	ids := []uuid.UUID{}
	for _, key := range keys {
		if id, err := uuid.Parse(strings.TrimSuffix(path.Base(key), ".csv")); err == nil {
			ids = append(ids, id)
		}
	}
	var files struct {
		Known  bool `db:"known"`  // one of the ids
		Listed bool `db:"listed"` // any file
		Marked bool `db:"marked"` // a storage, before
	}
	if err := s.db.GetContext(ctx, &files, compareSQL, pg.UUIDArray(ids)); err != nil {
		return "", fmt.Errorf("compare files: %w", pg.Translate(err))
	}
	switch {
	case files.Known:
	case len(ids) > 0:
		return "the storage contains files, but the database lists none of them", nil
	case files.Listed:
		return "the storage contains no file, but the database lists some: the disk may not be mounted", nil
	case files.Marked:
		return "the storage contains no file, but a storage has been marked before: the disk may not be mounted", nil
	}
	return "", nil
}
