package file

import (
	"context"
	"encoding/hex"
	"time"

	"github.com/jmoiron/sqlx"

	"email-gateway/shared/store/internal/pg"
	"email-gateway/shared/store/quota"
)

// Add adds a file whose object is in the storage. It returns *quota.Error if the file would exceed the quota of stored
// bytes. The result has another id if the company stored the same content meanwhile: the caller then deletes its object.
func Add(ctx context.Context, db *pg.DB, quotas *quota.Store, f File) (File, error) {
	wanted := quota.Demand{quota.StoredFileBytes: f.Bytes}
	near, err := quotas.Near(ctx, f.CompanyID, wanted)
	var added []File
	switch {
	case err != nil:
	case near:
		added, err = quota.InTx(ctx, db, f.CompanyID, func(tx *sqlx.Tx, _ time.Duration) ([]File, error) {
			b, err := quota.OpenBudget(ctx, tx, f.CompanyID, wanted, true)
			if err != nil {
				return nil, err
			}
			if err := b.Take(wanted); err != nil {
				return nil, err
			}
			return insert(ctx, tx, f)
		})
	default:
		added, err = pg.InBoundedTx(ctx, db, pg.HeldRow{Company: f.CompanyID, Name: hex.EncodeToString(f.SHA256)}, func(tx *sqlx.Tx, _ time.Duration) ([]File, error) {
			return insert(ctx, tx, f)
		})
		err = pg.AsBusy(err)
	}
	if err != nil {
		return File{}, pg.Wrap("add file", err)
	}
	return added[0], nil
}

// insertSQL inserts a row. If another request has stored the same content meanwhile, it finds and locks that row by
// stored_files_company_id_sha256_key.
const insertSQL = `
INSERT INTO stored_files AS f (id, company_id, sha256, size, bytes, media_type) VALUES ($1, $2, $3, $4, $5, $6)
ON CONFLICT (company_id, sha256) DO UPDATE SET used_at = greatest(f.used_at, now()) RETURNING ` + columns

// insert adds the row in a transaction.
func insert(ctx context.Context, tx *sqlx.Tx, f File) ([]File, error) {
	added := make([]File, 1)
	return added, pg.Translate(tx.GetContext(ctx, &added[0], insertSQL, f.ID, f.CompanyID, f.SHA256, f.Size, f.Bytes, f.MediaType))
}
