// Package file contains the SQL statements of stored files and attachments: which contents a company has stored, and which
// email or mailing attaches them under which name. The contents themselves are objects in the file storage (Key).
//
// The same content is stored once per company, as one row, under any number of names: names belong to attachments.
package file

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jmoiron/sqlx"

	"email-gateway/shared/store/internal/pg"
)

// Prefix is the prefix of the keys of all stored files.
const Prefix = "files/"

// Key returns the key of a file in the storage. It contains the company, and no two rows ever have the same key: deleting
// the object of a deleted row cannot remove a content that was stored again.
func Key(company, id uuid.UUID) string { return Prefix + company.String() + "/" + id.String() }

// Binding returns the encryption binding of a file.
func Binding(company, id uuid.UUID) []byte { return append(company[:], id[:]...) }

// File is a stored content of a company.
type File struct {
	ID        uuid.UUID `db:"id"`
	CompanyID uuid.UUID `db:"company_id"`
	SHA256    []byte    `db:"sha256"`
	Size      int64     `db:"size"`       // bytes of the content
	Bytes     int64     `db:"bytes"`      // bytes of the encrypted object
	MediaType string    `db:"media_type"` // detected in the content
	CreatedAt time.Time `db:"created_at"`
	Missing   bool      `db:"missing"` // a worker did not find the object in the storage, or found it damaged
}

// columns are the columns of a File.
const columns = `id, company_id, sha256, size, bytes, media_type, created_at, missing_since IS NOT NULL AS missing`

// Store runs the statements. It is safe for concurrent use.
type Store struct{ db *pg.DB }

// New returns a Store that uses the connections of db.
func New(db *pg.DB) *Store { return &Store{db: db} }

const (
	// knownSQL finds the row by stored_files_company_id_sha256_key and locks nothing: emails that attach the same
	// content do not wait for each other. A file that a cleaner deletes meanwhile is found to be gone when the email is
	// accepted: see Hold.
	knownSQL = `SELECT ` + columns + ` FROM stored_files WHERE company_id = $1 AND sha256 = $2 AND used_at > now() - interval '1 hour'`

	// useSQL finds the row by stored_files_company_id_sha256_key and locks it. An attachment does not conflict with this lock. Of
	// several requests that wait for the lock, the first one writes.
	useSQL = `UPDATE stored_files SET used_at = now() WHERE company_id = $1 AND sha256 = $2 AND used_at <= now() - interval '1 hour' RETURNING ` + columns
)

// UseFile finds the company's file with this content and restarts, once an hour, the time after which DeleteUnused deletes it. It
// returns pg.ErrNotFound if there is none.
func (s *Store) UseFile(ctx context.Context, company uuid.UUID, sha256 []byte) (File, error) {
	var f File
	err := s.db.Get(ctx, &f, knownSQL, company, sha256)
	if errors.Is(err, pg.ErrNotFound) {
		err = s.useAgain(ctx, &f, company, sha256)
	}
	return f, pg.Wrap("use file", err)
}

// useAgain finds a file that was not used for an hour.
func (s *Store) useAgain(ctx context.Context, f *File, company uuid.UUID, sha256 []byte) error {
	err := s.db.InTx(ctx, func(tx *sqlx.Tx) error {
		if _, err := tx.ExecContext(ctx, pg.BoundWaitSQL, pg.LockTimeout(useWait)); err != nil {
			return pg.Translate(err)
		}
		err := pg.Translate(tx.GetContext(ctx, f, useSQL, company, sha256))
		if errors.Is(err, pg.ErrNotFound) { // another request has used it since
			err = pg.Translate(tx.GetContext(ctx, f, knownSQL, company, sha256))
		}
		return err
	})
	if pg.IsLockTimeout(err) {
		err = fmt.Errorf("%w: %s", pg.ErrBusy, err.Error())
	}
	return err
}

// useWait limits the wait for a cleaner that is deleting the file, which takes two statements.
const useWait = 2 * time.Second

// findSQL finds rows by stored_files_company_id_id_key and locks nothing.
const findSQL = `SELECT ` + columns + ` FROM stored_files WHERE company_id = $1 AND id = ANY ($2::uuid[])`

// Find returns the files of the company with these ids.
func (s *Store) Find(ctx context.Context, company uuid.UUID, ids []uuid.UUID) (map[uuid.UUID]File, error) {
	var rows []File
	if err := s.db.Select(ctx, &rows, findSQL, company, pg.UUIDArray(ids)); err != nil {
		return nil, fmt.Errorf("find files: %w", pg.Translate(err))
	}
	found := make(map[uuid.UUID]File, len(rows))
	for _, f := range rows {
		found[f.ID] = f
	}
	return found, nil
}

// listSQL scans stored_files_company_id_id_key backwards and locks nothing.
const listSQL = `SELECT ` + columns + ` FROM stored_files WHERE company_id = $1 AND id < $2 ORDER BY id DESC LIMIT $3`

// List returns at most limit files of the company with ids smaller than before, newest first (uuid.Max = from the newest).
func (s *Store) List(ctx context.Context, company, before uuid.UUID, limit int) ([]File, error) {
	files := []File{}
	if err := s.db.Select(ctx, &files, listSQL, company, before, limit); err != nil {
		return nil, fmt.Errorf("list files: %w", pg.Translate(err))
	}
	return files, nil
}
