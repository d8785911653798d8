package file

import (
	"context"
	"time"

	"github.com/jmoiron/sqlx"

	"email-gateway/shared/store/internal/pg"
	"email-gateway/shared/store/quota"
)

// AddFile adds a file whose object is in the storage. It returns *quota.Error if the file would exceed the quota of stored
// bytes. The result has another id if the company stored the same content meanwhile: the caller then deletes its object.
func (s *Store) AddFile(ctx context.Context, f File) (File, error) {
	wanted := quota.Demand{quota.StoredFileBytes: f.Bytes}
	added, err := quota.InTx(ctx, s.db, f.CompanyID, func(tx *sqlx.Tx, _ time.Duration) ([]File, error) {
		b, err := quota.OpenBudget(ctx, tx, f.CompanyID, wanted, true)
		if err != nil {
			return nil, err
		}
		if err := b.Take(wanted); err != nil {
			return nil, err
		}
		added, err := Insert(ctx, tx, f)
		return []File{added}, err
	})
	if err != nil {
		return File{}, pg.Wrap("add file", err)
	}
	return added[0], nil
}
