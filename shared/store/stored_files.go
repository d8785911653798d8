package store

import (
	"context"

	"github.com/jmoiron/sqlx"

	"email-gateway/shared/store/file"
	"email-gateway/shared/store/internal/pg"
)

// AddFile adds a file whose object is in the storage. *QuotaError: the company has no room for it. The result has another
// id if the company stored the same content meanwhile: the caller then deletes its object.
func (s *Store) AddFile(ctx context.Context, f file.File) (file.File, error) {
	added, err := withQuotas(ctx, s.db, func(tx *sqlx.Tx) ([]file.File, error) {
		if err := takeFrom(ctx, tx, f.CompanyID, demand{QuotaStoredFileBytes: f.Bytes}, true); err != nil {
			return nil, err
		}
		added, err := file.Insert(ctx, tx, f)
		return []file.File{added}, err
	})
	if err != nil {
		return file.File{}, pg.Wrap("add file", err)
	}
	return added[0], nil
}

// owned are the attachments of emails, for file.Hold and file.Link.
func owned(emails []NewEmail) []file.Owned {
	var all []file.Owned
	for i := range emails {
		if e := &emails[i]; len(e.Attachments) > 0 {
			all = append(all, file.Owned{Owner: e.ID, Attachments: e.Attachments})
		}
	}
	return all
}
